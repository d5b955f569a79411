#pragma once

#include <array>
#include <cstdint>

#include "executor/random.hpp"

namespace zeroplan::executor {

// A permutation of [0, size) drawn from a key, without a table: a Feistel network over the smallest square of a
// power of two that has room, walked until it comes back into the range (Black and Rogaway, "Ciphers with
// Arbitrary Finite Domains", 2002). A value takes four walks on average at most, whatever the size.
class Permutation {
 public:
  // `size` must be at least 1.
  Permutation(std::uint64_t size, std::uint64_t key) : size_(size) {
    while (half_bits_ < 32 && (size - 1) >> (2 * half_bits_) != 0) ++half_bits_;
    mask_ = (std::uint64_t{1} << half_bits_) - 1;
    for (std::uint64_t round = 0; round < keys_.size(); ++round) keys_[round] = mix(key ^ mix(round + 1));
  }

  // Requires index < size.
  std::uint64_t operator()(std::uint64_t index) const {
    do index = exchanged(index);
    while (index >= size_);
    return index;
  }

 private:
  std::uint64_t exchanged(std::uint64_t value) const {
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask_;
    for (const std::uint64_t key : keys_) {
      const std::uint64_t turned = (left ^ mix(key ^ right)) & mask_;
      left = right;
      right = turned;
    }
    return left << half_bits_ | right;
  }

  std::uint64_t size_;
  unsigned half_bits_ = 1;
  std::uint64_t mask_ = 0;
  std::array<std::uint64_t, 6> keys_{};
};

}  // namespace zeroplan::executor
