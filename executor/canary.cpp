#include "executor/canary.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace zeroplan::executor::canary {

namespace {

constexpr std::uint32_t kWord = 0xffc5ffe3;
constexpr std::size_t kPatternBytes = 4096;

const std::byte* pattern() {
  static const auto bytes = [] {
    std::array<std::uint32_t, kPatternBytes / sizeof kWord + 1> words{};
    words.fill(kWord);
    return words;
  }();
  return reinterpret_cast<const std::byte*>(bytes.data());
}

}  // namespace

void plant(std::byte* memory, Bytes bytes) {
  for (Bytes at = 0; at < bytes; at += static_cast<Bytes>(kPatternBytes)) {
    const auto count = std::min(kPatternBytes, static_cast<std::size_t>(bytes - at));
    std::memcpy(memory + at, pattern(), count);
  }
}

Bytes written(const std::byte* memory, Bytes bytes, Bytes unit) {
  Bytes total = 0;
  for (Bytes at = 0; at < bytes; at += unit) {
    const Bytes end = std::min(bytes, at + unit);
    bool untouched = true;
    for (Bytes i = at; i < end && untouched; i += static_cast<Bytes>(kPatternBytes)) {
      const auto count = std::min(kPatternBytes, static_cast<std::size_t>(end - i));
      // The pattern begins anew every 4 bytes.
      untouched = std::memcmp(memory + i, pattern() + i % static_cast<Bytes>(sizeof kWord), count) == 0;
    }
    if (!untouched) total += end - at;
  }
  return total;
}

}  // namespace zeroplan::executor::canary
