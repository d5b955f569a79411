#pragma once

#include <cstdint>
#include <string_view>

// Counter-based random numbers: a value depends on its counter alone, so every rank can draw its own.
namespace zeroplan::executor {

// SplitMix64's finalizer: a bijection that mixes well, so counters make independent draws.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

constexpr std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0;
  for (const char c : text) hash = mix(hash ^ static_cast<unsigned char>(c));
  return hash;
}

}  // namespace zeroplan::executor
