#include "executor/communicator/reduce.hpp"

#include <algorithm>
#include <cstring>

#include "executor/half_lanes.hpp"

namespace zeroplan::executor {

using lanes::Bf16;
using lanes::Fp16;
using lanes::Fp32;
using program::DataType;

namespace {

// A result is written to every destination while it is in the first-level cache.
constexpr std::size_t kBlock = 2048;

template <class Type>
const typename Type::Stored* elements_of(const std::byte* memory, Elements first) {
  return reinterpret_cast<const typename Type::Stored*>(memory) + first;
}

template <Reduction reduction>
float combine(float a, float b) {
  if constexpr (reduction == Reduction::sum) return a + b;
  return a < b || b != b ? b : a;  // NOLINT(misc-redundant-expression): b != b is "b is a NaN"
}

#if defined(__x86_64__)
template <Reduction reduction>
ZEROPLAN_LANES_INLINE inline __m256 combine_lanes(__m256 a, __m256 b) {
  if constexpr (reduction == Reduction::sum) return _mm256_add_ps(a, b);
  const __m256 takes_b = _mm256_or_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ), _mm256_cmp_ps(b, b, _CMP_UNORD_Q));
  return _mm256_blendv_ps(a, b, takes_b);
}

template <Reduction reduction>
ZEROPLAN_LANES_INLINE inline void combine_pair(lanes::Pair& a, const lanes::Pair& b) {
  a = {combine_lanes<reduction>(a.first, b.first), combine_lanes<reduction>(a.second, b.second)};
}

// Returns how many elements were reduced.
template <class Type, Reduction reduction>
ZEROPLAN_LANES std::size_t reduce_lanes(std::span<const std::byte* const> sources, Elements first,
                                        typename Type::Stored* out, std::size_t count) {
  constexpr std::size_t kPair = 2 * lanes::kLanes;
  std::size_t i = 0;
  for (; i + 2 * kPair <= count; i += 2 * kPair) {
    const auto* from = elements_of<Type>(sources[0], first) + i;
    lanes::Pair left = Type::load_pair(from);
    lanes::Pair right = Type::load_pair(from + kPair);
    for (std::size_t s = 1; s < sources.size(); ++s) {
      from = elements_of<Type>(sources[s], first) + i;
      combine_pair<reduction>(left, Type::load_pair(from));
      combine_pair<reduction>(right, Type::load_pair(from + kPair));
    }
    Type::store_pair(out + i, left);
    Type::store_pair(out + i + kPair, right);
  }
  return i;
}
#endif

// Returns how many elements it reduced.
template <class Type, Reduction reduction>
std::size_t reduce_block(std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
                         Elements first, std::size_t count) {
  using Stored = typename Type::Stored;
  Stored* out = reinterpret_cast<Stored*>(destinations[0]) + first;
  std::size_t i = 0;
#if defined(__x86_64__)
  if (lanes::supported()) i = reduce_lanes<Type, reduction>(sources, first, out, count);
#endif
  for (; i < count; ++i) {
    float result = Type::load(elements_of<Type>(sources[0], first)[i]);
    for (const std::byte* source : sources.subspan(1)) {
      result = combine<reduction>(result, Type::load(elements_of<Type>(source, first)[i]));
    }
    out[i] = Type::store(result);
  }
  for (std::byte* destination : destinations.subspan(1)) {
    std::memcpy(reinterpret_cast<Stored*>(destination) + first, out, count * sizeof(Stored));
  }
  return i;
}

template <class Type>
Elements reduce(std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
                Elements elements, Reduction reduction) {
  const auto block = reduction == Reduction::sum ? reduce_block<Type, Reduction::sum>
                                                 : reduce_block<Type, Reduction::maximum>;
  std::size_t done = 0;
  for (Elements first = 0; first < elements; first += static_cast<Elements>(kBlock)) {
    done += block(sources, destinations, first, std::min(kBlock, static_cast<std::size_t>(elements - first)));
  }
  return static_cast<Elements>(done);
}

}  // namespace

Elements reduce_in_order(std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
                         DataType type, Elements elements, Reduction reduction) {
  if (elements == 0) return 0;
  if (sources.size() == 1) {
    const auto bytes = static_cast<std::size_t>(elements * program::bytes_of(type));
    for (std::byte* destination : destinations) {
      if (destination != sources[0]) std::memcpy(destination, sources[0], bytes);
    }
    return elements;
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
  return 0;
}

}  // namespace zeroplan::executor
