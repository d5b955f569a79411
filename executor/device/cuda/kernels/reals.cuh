#pragma once

#include <algorithm>

#include "executor/device/cuda/kernel_code.cuh"
#include "executor/device/cuda/launch.hpp"

// Of a loop whose length is not known, for several reads at a time.
#if defined(ZEROPLAN_EMULATED)
#define ZEROPLAN_UNROLL_4
#else
#define ZEROPLAN_UNROLL_4 _Pragma("unroll 4")
#endif

// Operands of real numbers whose type is known when a kernel runs, eight elements of a thread at a time. A kernel is
// memory-bound and asks for the type once in eight elements, so one kernel serves every mixture of types, as on the CPU.
namespace zeroplan::executor::cuda {

using Index = std::int64_t;

__device__ __forceinline__ Index smaller(Index a, Index b) { return a < b ? a : b; }

struct Reals {
  std::byte* data = nullptr;  // nullptr: the operand is absent
  program::DataType type = program::DataType::fp32;

  template <class Function>
  Reals translated(const Function& function) const {
    return {function(data), type};
  }
};
inline Reals reals(const Tensor& tensor) { return {tensor.data, tensor.type}; }

// Whether eight elements that begin at a multiple of eight take 16-byte accesses. True of an absent operand.
inline bool is_aligned(const Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0;
}
template <class... Tensors>
bool are_aligned(const Tensors&... tensors) {
  return (is_aligned(tensors) && ...);
}

// Elements [begin, begin + count) of a tensor; of an absent one, nothing.
inline Tensor part_of(const Tensor& tensor, Elements begin, Elements count) {
  if (!tensor) return {};
  return {tensor.data + begin * program::bytes_of(tensor.type), tensor.type, count};
}

// choose(std::true_type or std::false_type): host code that starts a kernel with or without vectors.
template <class Choose>
void with_vectors(bool vectors, const Choose& choose) {
  if (vectors) {
    choose(std::true_type{});
  } else {
    choose(std::false_type{});
  }
}

inline constexpr int kEight = 8;

// The eight elements of a thread among those of a row, or of a vector, that a group of threads takes at once: they
// follow each other where they take vectors, else those of neighbouring threads do. Those from `end` on are not there.
template <bool kVectors>
struct Eight {
  Index first, end;
  Index step;

  // Of the group's chunk number `chunk`.
  __device__ Eight(Index chunk, int thread, int threads, Index all)
      : first(chunk * kEight * threads + (kVectors ? kEight * thread : thread)), end(all), step(threads) {}
  __device__ Eight(Index only, Index all) : first(only), end(all), step(all) {}

  __device__ __forceinline__ Index operator[](int i) const { return first + (kVectors ? i : i * step); }
  __device__ __forceinline__ bool any() const { return first < end; }
  // With vectors all are there, or none.
  __device__ __forceinline__ bool has(int i) const { return (kVectors ? first : first + i * step) < end; }
};

__device__ __forceinline__ float load_real(const Reals& from, Index i) {
  switch (from.type) {
    case program::DataType::fp32:
      return reinterpret_cast<const float*>(from.data)[i];
    case program::DataType::fp16:
      return to_float(reinterpret_cast<const fp16*>(from.data)[i]);
    default:
      return to_float(reinterpret_cast<const bf16*>(from.data)[i]);
  }
}
__device__ __forceinline__ void store_real(const Reals& to, Index i, float value) {
  switch (to.type) {
    case program::DataType::fp32:
      reinterpret_cast<float*>(to.data)[i] = value;
      return;
    case program::DataType::fp16:
      reinterpret_cast<fp16*>(to.data)[i] = from_float<fp16>(value);
      return;
    default:
      reinterpret_cast<bf16*>(to.data)[i] = from_float<bf16>(value);
  }
}

// What was read and is not yet looked at, so that the reads of several operands are under way together.
template <bool kVectors>
struct Fetched;
template <>
struct Fetched<true> {
  Words low, high;  // high: of fp32 only
};
template <>
struct Fetched<false> {
  float values[kEight];
};

// Reads elements offset + at[0 ... 7] that are there.
__device__ __forceinline__ Fetched<true> fetch(const Reals& from, Index offset, const Eight<true>& at) {
  Fetched<true> result{};
  if (!at.any()) return result;
  const bool wide = from.type == program::DataType::fp32;
  const std::byte* place = from.data + (offset + at.first) * (wide ? 4 : 2);
  result.low = load_words(place);
  if (wide) result.high = load_words(place + 16);
  return result;
}
__device__ __forceinline__ Fetched<false> fetch(const Reals& from, Index offset, const Eight<false>& at) {
  Fetched<false> result{};
  ZEROPLAN_UNROLL
  for (int i = 0; i < kEight; ++i) {
    if (at.has(i)) result.values[i] = load_real(from, offset + at[i]);
  }
  return result;
}

// As fp32; 0 for those that are not there.
__device__ __forceinline__ void unpack(const Fetched<true>& from, const Reals& of, float (&to)[kEight]) {
  switch (of.type) {
    case program::DataType::fp32: {
      float halves[2][4];
      words_to_floats(from.low, halves[0], float{});
      words_to_floats(from.high, halves[1], float{});
      ZEROPLAN_UNROLL
      for (int i = 0; i < kEight; ++i) to[i] = halves[i / 4][i % 4];
      return;
    }
    case program::DataType::fp16:
      return words_to_floats(from.low, to, fp16{});
    default:
      return words_to_floats(from.low, to, bf16{});
  }
}
__device__ __forceinline__ void unpack(const Fetched<false>& from, const Reals&, float (&to)[kEight]) {
  ZEROPLAN_UNROLL
  for (int i = 0; i < kEight; ++i) to[i] = from.values[i];
}

template <bool kVectors>
__device__ __forceinline__ void read(const Reals& from, Index offset, const Eight<kVectors>& at,
                                     float (&to)[kEight]) {
  unpack(fetch(from, offset, at), from, to);
}

// Rounds once.
__device__ __forceinline__ void write(const Reals& to, Index offset, const Eight<true>& at,
                                      const float (&values)[kEight]) {
  if (!at.any()) return;
  const Index place = offset + at.first;
  switch (to.type) {
    case program::DataType::fp32: {
      auto* floats = reinterpret_cast<float*>(to.data) + place;
      store_vector(floats, {values[0], values[1], values[2], values[3]});
      store_vector(floats + 4, {values[4], values[5], values[6], values[7]});
      return;
    }
    case program::DataType::fp16:
      return store_vector(reinterpret_cast<fp16*>(to.data) + place, values);
    default:
      return store_vector(reinterpret_cast<bf16*>(to.data) + place, values);
  }
}
__device__ __forceinline__ void write(const Reals& to, Index offset, const Eight<false>& at,
                                      const float (&values)[kEight]) {
  ZEROPLAN_UNROLL
  for (int i = 0; i < kEight; ++i) {
    if (at.has(i)) store_real(to, offset + at[i], values[i]);
  }
}

// As they are once they were written and read again.
__device__ __forceinline__ void round_as(const Reals& written, float (&values)[kEight]) {
  switch (written.type) {
    case program::DataType::fp32:
      return;
    case program::DataType::fp16:
      ZEROPLAN_UNROLL
      for (int i = 0; i < kEight; ++i) values[i] = to_float(from_float<fp16>(values[i]));
      return;
    default:
      ZEROPLAN_UNROLL
      for (int i = 0; i < kEight; ++i) values[i] = to_float(from_float<bf16>(values[i]));
  }
}

// A vector of parameters, which may begin anywhere: `aligned` says whether it takes vectors.
__device__ __forceinline__ void read_parameters(const Reals& from, bool aligned, Index offset,
                                                const Eight<true>& at, float (&to)[kEight]) {
  if (aligned) return read(from, offset, at, to);
  ZEROPLAN_UNROLL
  for (int i = 0; i < kEight; ++i) to[i] = at.any() ? load_real(from, offset + at[i]) : 0.0F;
}
__device__ __forceinline__ void read_parameters(const Reals& from, bool, Index offset, const Eight<false>& at,
                                                float (&to)[kEight]) {
  read(from, offset, at, to);
}

// ---- vectors: a thread has eight elements ----

inline constexpr int kFlatThreads = 256;

inline LaunchShape flat_shape(Elements elements) {
  return {dim3(static_cast<unsigned>(div_ceil(elements, kFlatThreads * kEight))), dim3(kFlatThreads), 0};
}

// body(at) for the thread's elements of a vector; with vectors, the last block's threads take what is no whole eight.
template <bool kVectors, class Body>
__device__ __forceinline__ void over_flat(Index elements, const Body& body) {
  const Index whole = kVectors ? elements / kEight * kEight : elements;
  const Eight<kVectors> at(blockIdx.x, static_cast<int>(threadIdx.x), kFlatThreads, whole);
  if (at.any()) body(at);
  if constexpr (kVectors) {
    const Eight<false> rest(whole + threadIdx.x, elements);
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x < kEight && rest.any()) body(rest);
  }
}

// ---- rows, a block for each tile of a row ----

struct Tiles {
  Index width = 0, of_row = 0;
  int threads = 0;

  __device__ __forceinline__ Index row() const { return blockIdx.x / of_row; }
  template <bool kVectors>
  __device__ __forceinline__ Eight<kVectors> at() const {
    return {static_cast<Index>(blockIdx.x % of_row), static_cast<int>(threadIdx.x), threads, width};
  }
};
inline Tiles tiles_of(Index width, int most_threads = kFlatThreads) {
  const Index needed = round_up(div_ceil(width, kEight), kWarpLanes);
  const int threads = static_cast<int>(std::clamp<Index>(needed, kWarpLanes, most_threads));
  return {width, div_ceil(width, kEight * threads), threads};
}
inline LaunchShape shape_of(const Tiles& tiles, Index rows) {
  return {dim3(static_cast<unsigned>(rows * tiles.of_row)), dim3(static_cast<unsigned>(tiles.threads)), 0};
}

// ---- rows, a warp or a block each ----

// The sums over a row's threads of several numbers, in every thread: a warp each, or a block each. `slots` is shared
// memory of kCount numbers for each warp, and is not needed for warps.
template <bool kWarps, int kCount>
__device__ __forceinline__ void row_sums(float (&values)[kCount], float* slots) {
  if constexpr (kWarps) {
    ZEROPLAN_UNROLL
    for (int i = 0; i < kCount; ++i) values[i] = warp_sum(values[i]);
  } else {
    block_sums(values, slots);
  }
}

// The part of a row that a thread has: in its registers, or, with kChunks 0, wherever it is.
template <bool kVectors, int kChunks>
class HeldRow {
 public:
  __device__ __forceinline__ HeldRow(const Reals& from, Index offset, int thread, int threads, Index width)
      : HeldRow(
            thread, threads, width, [&](const auto& at) { return fetch(from, offset, at); },
            [&](const auto& fetched, const auto&, float (&values)[kEight]) {
              unpack(fetched, from, values);
            }) {}
  // fetch(at) of all chunks, then finish(fetched, at, values) of each.
  template <class Fetch, class Finish>
  __device__ __forceinline__ HeldRow(int thread, int threads, Index width, const Fetch& fetch,
                                     const Finish& finish)
      : thread_(thread), threads_(threads), width_(width) {
    decltype(fetch(at(0))) fetched[kChunks];
    ZEROPLAN_UNROLL
    for (int c = 0; c < kChunks; ++c) fetched[c] = fetch(at(c));
    ZEROPLAN_UNROLL
    for (int c = 0; c < kChunks; ++c) finish(fetched[c], at(c), values_[c]);
  }
  // body(at, values)
  template <class Body>
  __device__ __forceinline__ void each(const Body& body) const {
    ZEROPLAN_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      if (at(c).any()) body(at(c), values_[c]);
    }
  }

 private:
  __device__ __forceinline__ Eight<kVectors> at(int chunk) const {
    return {chunk, thread_, threads_, width_};
  }

  int thread_, threads_;
  Index width_;
  float values_[kChunks][kEight];
};
template <bool kVectors>
class HeldRow<kVectors, 0> {
 public:
  __device__ __forceinline__ HeldRow(const Reals& from, Index offset, int thread, int threads, Index width)
      : from_(from), offset_(offset), thread_(thread), threads_(threads), width_(width) {}
  template <class Body>
  __device__ __forceinline__ void each(const Body& body) const {
    for (Index c = 0; c * kEight * threads_ < width_; ++c) {
      const Eight<kVectors> at(c, thread_, threads_, width_);
      float values[kEight];
      read(from_, offset_, at, values);
      if (at.any()) body(at, values);
    }
  }

 private:
  Reals from_;
  Index offset_;
  int thread_, threads_;
  Index width_;
};

}  // namespace zeroplan::executor::cuda
