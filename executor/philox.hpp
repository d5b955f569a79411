#pragma once

#include <cstdint>

#include "executor/host_device.hpp"

// Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011): four random
// words of a counter and a key, each counter's independent of the others'. The same on the host and on a GPU.
namespace zeroplan::executor {

struct PhiloxWords {
  std::uint32_t word[4];
};
struct PhiloxKey {
  std::uint32_t word[2];
};

ZEROPLAN_HOST_DEVICE inline PhiloxWords philox(PhiloxWords counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * counter.word[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * counter.word[2];
    counter = {{static_cast<std::uint32_t>(b >> 32U) ^ counter.word[1] ^ key.word[0],
                static_cast<std::uint32_t>(b),
                static_cast<std::uint32_t>(a >> 32U) ^ counter.word[3] ^ key.word[1],
                static_cast<std::uint32_t>(a)}};
    key.word[0] += 0x9E3779B9U;
    key.word[1] += 0xBB67AE85U;
  }
  return counter;
}

}  // namespace zeroplan::executor
