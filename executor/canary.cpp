#include "executor/canary.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

namespace zeroplan::executor::canary {

namespace {

constexpr std::uint32_t kWord = 0xffc5ffe3;
constexpr std::size_t kPatternBytes = 4096;
constexpr Bytes kBlockBytes = 64 * kKiB;  // that are looked at together

std::span<const std::byte> pattern() {
  static const auto bytes = [] {
    std::array<std::uint32_t, kPatternBytes / sizeof kWord + 1> words{};
    words.fill(kWord);
    return words;
  }();
  return std::as_bytes(std::span(bytes));
}

// The pattern begins anew every 4 bytes; these begin `shift` bytes into it.
bool is_untouched(std::span<const std::byte> bytes, std::size_t shift) {
  for (std::size_t at = 0; at < bytes.size(); at += kPatternBytes) {
    const std::size_t count = std::min(kPatternBytes, bytes.size() - at);
    if (std::memcmp(bytes.data() + at, pattern().data() + shift, count) != 0) return false;
  }
  return true;
}

}  // namespace

void plant(Device& device, std::byte* memory, Bytes bytes) {
  for (Bytes at = 0; at < bytes; at += static_cast<Bytes>(kPatternBytes)) {
    const auto count = std::min(kPatternBytes, static_cast<std::size_t>(bytes - at));
    device.upload(memory + at, pattern().first(count), program::Stream::compute);
  }
}

Bytes written(Device& device, const std::byte* memory, Bytes bytes, Bytes unit) {
  // Blocks of whole units and whole words.
  const Bytes block = round_up(kBlockBytes, std::lcm(unit, Bytes{sizeof kWord}));
  std::vector<std::byte> host(static_cast<std::size_t>(std::min(block, bytes)));
  Bytes total = 0;
  for (Bytes begin = 0; begin < bytes; begin += block) {
    const auto here = std::span(host).first(static_cast<std::size_t>(std::min(block, bytes - begin)));
    device.download(here, memory + begin);
    for (std::size_t at = 0; at < here.size(); at += static_cast<std::size_t>(unit)) {
      const auto one = here.subspan(at, std::min(static_cast<std::size_t>(unit), here.size() - at));
      if (!is_untouched(one, at % sizeof kWord)) total += static_cast<Bytes>(one.size());
    }
  }
  return total;
}

}  // namespace zeroplan::executor::canary
