#pragma once

#include <string>

#include "executor/communicator/communicator.hpp"

namespace zeroplan::executor::test {

// What a rank that is a process does, by name:
//
//   results        every collective at odd sizes has the bits that ranks as threads get from the same inputs;
//                  messages between two ranks; groups; the ledger. Prints "results: ok"
//   sender         the last rank does not send what rank 0 is to receive
//   sends          16 MiB through reduce_scatter, all_gather and all_reduce, for counting what is sent
//   bandwidth      prints the time of an all_reduce by size
//   timeout, lengths, mismatch, abort, exception, configuration, exit
//                  the last rank fails in that way, at "matmul N", while the others are in call 1; another
//                  end is a std::logic_error
void run_scenario(Communicator& world, const std::string& what);

}  // namespace zeroplan::executor::test
