#pragma once

#include <array>

#include "planner/program/measurement.hpp"

namespace zeroplan::executor {

// Bytes that this rank itself carried between its memory and other ranks', by collective. They are counted by
// the code that sends, copies or reduces them, as it does so, and not from the arguments of a call (those are
// the ledger's). Ranks that are processes carry what they send; ranks that are threads what they read from
// another's memory or write into it. So each byte between two ranks is carried by one of them, and a group of
// n ranks carries, for a vector of S bytes,
//
//   (n-1) S     for a reduce-scatter, an all-gather or a broadcast
//   2 (n-1) S   for an all-reduce
//
// whatever the implementation: per rank the same as a ring's.
class Moved {
 public:
  void add(program::Op collective, Bytes bytes) { bytes_[program::collective_index(collective)] += bytes; }
  Bytes of(program::Op collective) const { return bytes_[program::collective_index(collective)]; }

 private:
  std::array<Bytes, program::kCollectives> bytes_{};
};

}  // namespace zeroplan::executor
