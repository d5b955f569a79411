#include <vector>

#include "executor/device/cuda/kernels/reals.cuh"
#include "executor/device/cuda/kernels/reduce.hpp"

namespace zeroplan::executor::cuda {

namespace {

struct Places {
  std::byte* at[kMostPlaces] = {};
  int count = 0;

  template <class Function>
  Places translated(const Function& function) const {
    Places moved = *this;
    for (int i = 0; i < count; ++i) moved.at[i] = function(at[i]);
    return moved;
  }
};

__device__ __forceinline__ float reduced(float before, float value, Reduced how) {
  if (how == Reduced::sum) return before + value;
  return before != before || value <= before ? before : value;
}

template <bool kVectors>
__global__ void __launch_bounds__(kFlatThreads)
    reduce(Places places, Index to, program::DataType type, Index elements, Reduced how) {
  over_flat<kVectors>(elements, [&](const auto& at) {
    float result[kEight];
    read(Reals{places.at[0], type}, 0, at, result);
    for (int place = 1; place < places.count; ++place) {
      float values[kEight];
      read(Reals{places.at[place], type}, 0, at, values);
      ZEROPLAN_UNROLL
      for (int i = 0; i < kEight; ++i) result[i] = reduced(result[i], values[i], how);
    }
    for (int place = 0; place < places.count; ++place) {
      if (to < 0 || to == place) write(Reals{places.at[place], type}, 0, at, result);
    }
  });
}

}  // namespace

void reduce_in_order(std::span<std::byte* const> places, std::int64_t to, program::DataType type,
                     Elements elements, Reduced how, cudaStream_t stream) {
  if (elements == 0) return;
  Places all;
  std::vector<OperandRange> ranges;
  bool aligned = true;
  for (std::byte* place : places) {
    const bool written = to < 0 || to == all.count;
    ranges.push_back({place, elements * program::bytes_of(type), true, written});
    aligned = aligned && is_aligned(Tensor{place, type, elements});
    all.at[all.count++] = place;
  }
  with_vectors(aligned, [&](auto vectors) {
    launch<reduce<vectors()>>(stream, flat_shape(elements), ranges, all, to, type, elements, how);
  });
}

}  // namespace zeroplan::executor::cuda
