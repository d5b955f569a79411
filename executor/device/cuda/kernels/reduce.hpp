#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

#include "executor/tensor.hpp"

namespace zeroplan::executor::cuda {

// So many vectors at most.
inline constexpr std::size_t kMostPlaces = 32;

enum class Reduced : std::uint8_t { sum, maximum };

// Reduces `elements` of the vectors at `places` in their order, in fp32 with one rounding, and writes the result to place
// `to`, or to all of them where it is negative. A maximum with a NaN is a NaN. fp32, fp16 or bf16.
void reduce_in_order(std::span<std::byte* const> places, std::int64_t to, program::DataType type,
                     Elements elements, Reduced how, cudaStream_t stream);

}  // namespace zeroplan::executor::cuda
