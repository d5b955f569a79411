#include "executor/communicator/reduce.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "executor/half.hpp"

namespace zeroplan::executor {

using program::DataType;

namespace {

// The running sums of a block stay in the first-level cache while the block of every source passes by.
constexpr std::size_t kBlock = 2048;
using Block = std::array<float, kBlock>;

float combine(float a, float b, Reduction reduction) {
  if (reduction == Reduction::sum) return a + b;
  return a < b || b != b ? b : a;  // NOLINT(misc-redundant-expression): b != b is "b is a NaN"
}

struct Fp32 {
  using Stored = float;
  static float load(float value) { return value; }
  static float store(float value) { return value; }
};
struct Fp16 {
  using Stored = std::uint16_t;
  static float load(std::uint16_t bits) { return float_from_fp16(bits); }
  static std::uint16_t store(float value) { return fp16_from_float(value); }
};
struct Bf16 {
  using Stored = std::uint16_t;
  static float load(std::uint16_t bits) { return float_from_bf16(bits); }
  static std::uint16_t store(float value) { return bf16_from_float(value); }
};

template <class Type, Reduction reduction>
void reduce_block(std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
                  Elements first, std::size_t count) {
  using Stored = typename Type::Stored;
  const auto source = [&](std::size_t i) { return reinterpret_cast<const Stored*>(sources[i]) + first; };
  Block accumulated;  // NOLINT(cppcoreguidelines-pro-type-member-init): `count` of it is written before it is
                      // read
  float* __restrict sum = accumulated.data();

  const Stored* __restrict a = source(0);
  const Stored* __restrict b = source(1);
  for (std::size_t i = 0; i < count; ++i) sum[i] = combine(Type::load(a[i]), Type::load(b[i]), reduction);
  for (std::size_t s = 2; s < sources.size(); ++s) {
    const Stored* __restrict next = source(s);
    for (std::size_t i = 0; i < count; ++i) sum[i] = combine(sum[i], Type::load(next[i]), reduction);
  }

  std::array<Stored, kBlock> rounded;  // NOLINT(cppcoreguidelines-pro-type-member-init): as above
  const void* result = sum;
  if constexpr (!std::is_same_v<Stored, float>) {
    for (std::size_t i = 0; i < count; ++i) rounded[i] = Type::store(sum[i]);
    result = rounded.data();
  }
  for (std::byte* destination : destinations) {
    std::memcpy(reinterpret_cast<Stored*>(destination) + first, result, count * sizeof(Stored));
  }
}

template <class Type>
void reduce(std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
            Elements elements, Reduction reduction) {
  const auto block = reduction == Reduction::sum ? reduce_block<Type, Reduction::sum>
                                                 : reduce_block<Type, Reduction::maximum>;
  for (Elements first = 0; first < elements; first += static_cast<Elements>(kBlock)) {
    block(sources, destinations, first, std::min(kBlock, static_cast<std::size_t>(elements - first)));
  }
}

}  // namespace

void reduce_in_order(std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
                     DataType type, Elements elements, Reduction reduction) {
  if (elements == 0) return;
  if (sources.size() == 1) {
    const auto bytes = static_cast<std::size_t>(elements * program::bytes_of(type));
    for (std::byte* destination : destinations) {
      if (destination != sources[0]) std::memcpy(destination, sources[0], bytes);
    }
    return;
  }
  switch (type) {
    case DataType::fp32:
      return reduce<Fp32>(sources, destinations, elements, reduction);
    case DataType::fp16:
      return reduce<Fp16>(sources, destinations, elements, reduction);
    case DataType::bf16:
      return reduce<Bf16>(sources, destinations, elements, reduction);
    case DataType::int32:
    case DataType::uint8:
      break;  // refused where the call was checked
  }
}

}  // namespace zeroplan::executor
