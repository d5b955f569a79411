#include "executor/half_arrays.hpp"

#include "executor/half_lanes.hpp"

namespace zeroplan::executor {

using program::DataType;

namespace {

template <class From, class To>
void convert_rest(const typename From::Stored* from, typename To::Stored* to, std::size_t begin,
                  std::size_t count) {
  for (std::size_t i = begin; i < count; ++i) to[i] = To::store(From::load(from[i]));
}

#if defined(__x86_64__)
// Returns how many were converted.
template <class From, class To>
ZEROPLAN_LANES std::size_t convert_lanes(const typename From::Stored* from, typename To::Stored* to,
                                         std::size_t count) {
  std::size_t i = 0;
  for (; i + lanes::kLanes <= count; i += lanes::kLanes) To::store_lanes(to + i, From::load_lanes(from + i));
  return i;
}
#endif

template <class From, class To>
void convert(const typename From::Stored* from, typename To::Stored* to, Elements elements) {
  const auto count = static_cast<std::size_t>(elements);
  std::size_t done = 0;
#if defined(__x86_64__)
  if (lanes::supported()) done = convert_lanes<From, To>(from, to, count);
#endif
  convert_rest<From, To>(from, to, done, count);
}

}  // namespace

void floats_from_halves(DataType type, const std::uint16_t* from, float* to, Elements count) {
  if (type == DataType::bf16) return convert<lanes::Bf16, lanes::Fp32>(from, to, count);
  convert<lanes::Fp16, lanes::Fp32>(from, to, count);
}

void halves_from_floats(DataType type, const float* from, std::uint16_t* to, Elements count) {
  if (type == DataType::bf16) return convert<lanes::Fp32, lanes::Bf16>(from, to, count);
  convert<lanes::Fp32, lanes::Fp16>(from, to, count);
}

}  // namespace zeroplan::executor
