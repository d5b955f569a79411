#include "executor/communicator/reduce.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "executor/half.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;
using program::DataType;

namespace {

float to_float(DataType type, std::uint16_t bits) {
  return type == DataType::fp16 ? float_from_fp16(bits) : float_from_bf16(bits);
}

std::uint16_t from_float(DataType type, float value) {
  return type == DataType::fp16 ? fp16_from_float(value) : bf16_from_float(value);
}

// The definition, one element at a time.
float reduced(float a, float b, Reduction reduction) {
  if (reduction == Reduction::sum) return a + b;
  if (std::isnan(a) || std::isnan(b)) return NAN;
  return std::fmax(a, b);
}

}  // namespace

// Every pattern meets random ones; not a multiple of any vector's length; the first source is the
// destination.
TEST_CASE("16-bit reductions: fp32 in the order of the sources, rounded once") {
  constexpr std::size_t kCount = 0x10000 + 21;
  for (const DataType type : {DataType::fp16, DataType::bf16}) {
    for (const Reduction reduction : {Reduction::sum, Reduction::maximum}) {
      for (const std::size_t ranks : {std::size_t{2}, std::size_t{3}, std::size_t{5}}) {
        CAPTURE(ranks);
        CAPTURE(static_cast<int>(type));
        std::mt19937 generator(3);
        std::vector<std::vector<std::uint16_t>> vectors(ranks, std::vector<std::uint16_t>(kCount));
        for (std::size_t i = 0; i < kCount; ++i) {
          for (auto& vector : vectors) vector[i] = static_cast<std::uint16_t>(generator());
          vectors[0][i] = static_cast<std::uint16_t>(i);
          // As large as the first, so that sums have to be rounded.
          if (i % 2 == 0) vectors[1][i] = static_cast<std::uint16_t>(i ^ (generator() & 0x1ffU));
        }
        const auto before = vectors;
        std::vector<const std::byte*> sources;
        sources.reserve(ranks);
        for (auto& vector : vectors) sources.push_back(reinterpret_cast<const std::byte*>(vector.data()));
        std::vector<std::uint16_t> other(kCount);
        std::byte* const destinations[] = {reinterpret_cast<std::byte*>(vectors[0].data()),
                                           reinterpret_cast<std::byte*>(other.data())};
        reduce_in_order(sources, destinations, type, static_cast<Elements>(kCount), reduction);
        int wrong = 0;
        for (std::size_t i = 0; i < kCount; ++i) {
          float want = to_float(type, before[0][i]);
          for (std::size_t r = 1; r < ranks; ++r)
            want = reduced(want, to_float(type, before[r][i]), reduction);
          const float got = to_float(type, vectors[0][i]);
          const bool right =
              std::isnan(want) ? std::isnan(got) : got == to_float(type, from_float(type, want));
          if (!right || other[i] != vectors[0][i]) ++wrong;
        }
        CHECK(wrong == 0);
      }
    }
  }
}
