#pragma once

#include <cstddef>

#include "executor/device/device.hpp"
#include "planner/units.hpp"

// A pattern that memory is filled with before it is used, so that it can be seen afterwards what was written.
// As fp32, fp16, bf16 and int32 it is nothing that is ever computed (a NaN with a payload of its own, a negative
// number), so a kernel that reads what nothing wrote makes that seen as well. Memory is a device's, at 4 bytes.
namespace zeroplan::executor::canary {

void plant(Device& device, std::byte* memory, Bytes bytes);

// How many bytes, in whole units, have something in them that is not the pattern: as an allocator gives memory
// out in such units, those that are used. Requires bytes to be a multiple of `unit`, or counts the last one as
// what it is. Nothing may run that writes there.
Bytes written(Device& device, const std::byte* memory, Bytes bytes, Bytes unit);

}  // namespace zeroplan::executor::canary
