#pragma once

#include <cstdint>

#include "planner/units.hpp"

// What the operating system says about this process (Linux, /proc/self).
namespace zeroplan::executor {

// Resident set now, and the highest since the last reset. 0 where the system does not say.
Bytes resident_bytes();
Bytes peak_resident_bytes();
// What RLIMIT_DATA counts: private memory that may be written, used or not.
Bytes data_bytes();
// From here on the highest counts anew. Without effect where the system does not allow it; then what was
// reached before counts too.
void reset_peak_resident();

// The same for all ranks of one process, different for different processes, also on other hosts.
std::int64_t process_number();
// The same for all processes of a host.
std::int64_t host_number();

}  // namespace zeroplan::executor
