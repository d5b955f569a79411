#include "executor/device/cpu/vector_level.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace zeroplan::executor::cpu {

namespace {

constexpr std::array<std::string_view, 4> kNames{"SSE", "AVX", "AVX2", "AVX-512"};

std::string_view name_of(VectorLevel level) { return kNames[static_cast<std::size_t>(level)]; }

// The targets of x86 in OpenBLAS 0.3's TargetList.txt, and what their kernels are compiled for.
constexpr std::array<std::pair<std::string_view, VectorLevel>, 26> kKernels{{
    {"prescott", VectorLevel::sse},      {"core2", VectorLevel::sse},
    {"penryn", VectorLevel::sse},        {"dunnington", VectorLevel::sse},
    {"nehalem", VectorLevel::sse},       {"atom", VectorLevel::sse},
    {"athlon", VectorLevel::sse},        {"opteron", VectorLevel::sse},
    {"opteron_sse3", VectorLevel::sse},  {"barcelona", VectorLevel::sse},
    {"bobcat", VectorLevel::sse},        {"nano", VectorLevel::sse},
    {"northwood", VectorLevel::sse},     {"katmai", VectorLevel::sse},
    {"coppermine", VectorLevel::sse},    {"banias", VectorLevel::sse},
    {"sandybridge", VectorLevel::avx},   {"bulldozer", VectorLevel::avx},
    {"piledriver", VectorLevel::avx},    {"steamroller", VectorLevel::avx},
    {"haswell", VectorLevel::avx2},      {"zen", VectorLevel::avx2},
    {"excavator", VectorLevel::avx2},    {"skylakex", VectorLevel::avx512},
    {"cooperlake", VectorLevel::avx512}, {"sapphirerapids", VectorLevel::avx512},
}};

}  // namespace

std::optional<VectorLevel> level_of_kernels(std::string_view core) {
  std::string lower(core);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto found = std::find_if(kKernels.begin(), kKernels.end(),
                                  [&](const auto& kernel) { return kernel.first == lower; });
  return found == kKernels.end() ? std::nullopt : std::optional(found->second);
}

std::optional<VectorLevel> level_of_processor() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") != 0) return VectorLevel::avx512;
  if (__builtin_cpu_supports("avx2") != 0) return VectorLevel::avx2;
  if (__builtin_cpu_supports("avx") != 0) return VectorLevel::avx;
  return VectorLevel::sse;
#else
  return std::nullopt;
#endif
}

std::string forced_kernels_note(std::string_view forced, std::string_view core,
                                std::optional<VectorLevel> processor) {
  const std::optional<VectorLevel> kernels = level_of_kernels(core);
  if (forced.empty() || !kernels || !processor || *kernels >= *processor) return {};
  return fmt::format(
      "The environment sets OPENBLAS_CORETYPE to {}: products are computed with {} kernels, and this "
      "processor "
      "has {}. Compare speeds under the same setting.",
      forced, name_of(*kernels), name_of(*processor));
}

}  // namespace zeroplan::executor::cpu
