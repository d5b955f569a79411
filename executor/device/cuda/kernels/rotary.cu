#include <algorithm>
#include <array>
#include <numbers>

#include "executor/device/cuda/checks.hpp"
#include "executor/device/cuda/kernels.hpp"
#include "executor/device/cuda/kernels/reals.cuh"

// Rotary position embedding (arXiv 2104.09864, Section 3.4): the pair (a, b) of a head at position p becomes
// (a cos t - b sin t, b cos t + a sin t) with t = p x the model's frequency i. Backward turns by -t. Of a head,
// only the first rotary_dims elements may be turned; the others stay.
namespace zeroplan::executor::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kMostPairs = 256;

// Whole turns a position of each pair, as a value: it is a kernel's argument.
struct Turns {
  double of_pair[kMostPairs];
};

struct Heads {
  Index tokens = 0, sequence = 0, heads = 0, head_dim = 0;
  Index stride = 0;  // the turned heads come first in a token's row
  int pairs = 0;
};

// Cosine and sine of so many turns, the whole ones taken away in fp64, where positions times frequencies are exact
// enough for any sequence.
__device__ __forceinline__ void of_turns(double turns, float& cosine, float& sine) {
  const auto part = static_cast<float>(turns - rint(turns));
#if defined(ZEROPLAN_EMULATED)
  cosine = std::cos(2 * std::numbers::pi_v<float> * part);
  sine = std::sin(2 * std::numbers::pi_v<float> * part);
#else
  sincospif(2 * part, &sine, &cosine);
#endif
}

// A block for each token: its cosines and sines once, then all its heads.
template <bool kVectors>
__global__ void __launch_bounds__(kThreads) turn(Heads heads, Turns turns, float direction, Reals x) {
  auto* cosines = reinterpret_cast<float*>(shared_bytes());
  float* sines = cosines + heads.pairs;
  const Index token = blockIdx.x;
  const auto position = static_cast<double>(token % heads.sequence);
  for (int pair = static_cast<int>(threadIdx.x); pair < heads.pairs; pair += kThreads) {
    of_turns(position * turns.of_pair[pair], cosines[pair], sines[pair]);
  }
  __syncthreads();
  // With vectors eight pairs of a head at a time, else one.
  constexpr int kStep = kVectors ? kEight : 1;
  const int steps = heads.pairs / kStep;
  for (Index i = threadIdx.x; i < heads.heads * steps; i += kThreads) {
    const auto pair = static_cast<int>(i % steps) * kStep;
    const Index offset = token * heads.stride + i / steps * heads.head_dim + pair;
    const Eight<kVectors> at(0, kVectors ? kEight : 1);
    float a[kEight];
    float b[kEight];
    const auto fetched_a = fetch(x, offset, at);
    const auto fetched_b = fetch(x, offset + heads.pairs, at);
    unpack(fetched_a, x, a);
    unpack(fetched_b, x, b);
    ZEROPLAN_UNROLL
    for (int j = 0; j < kStep; ++j) {
      const float cosine = cosines[pair + j];
      const float sine = direction * sines[pair + j];
      const float before = a[j];
      a[j] = before * cosine - b[j] * sine;
      b[j] = b[j] * cosine + before * sine;
    }
    write(x, offset, at, a);
    write(x, offset + heads.pairs, at, b);
  }
}

void rotate(const Kernel& kernel, const Launcher& launcher, float direction) {
  const program::ModelConstants& model = settings_of(kernel).model;
  const Tensor& x = kernel.operands[0];
  Heads heads{kernel.dims[0], kernel.extra, kernel.dims[1], kernel.dims[2]};
  if (heads.sequence == 0) refuse(kernel, "extra must be the sequence's length: positions depend on it");
  const Elements dims = model.rotary_dims > 0 ? model.rotary_dims : heads.head_dim;
  if (dims % 2 != 0 || dims > heads.head_dim) refuse(kernel, "an even number of a head's elements is turned");
  if (heads.tokens == 0 || !model.turns(kernel.layer)) return;
  heads.stride = x.elements / heads.tokens;
  if (dims / 2 > kMostPairs) refuse(kernel, "at most 512 elements of a head are turned");
  heads.pairs = static_cast<int>(dims / 2);
  const program::RotaryFrequencies& frequencies = model.rotary_of(kernel.layer);
  Turns turns{};
  for (int pair = 0; pair < heads.pairs; ++pair)
    turns.of_pair[pair] = frequencies.at(pair, dims) / (2 * std::numbers::pi);
  const LaunchShape shape{dim3(static_cast<unsigned>(heads.tokens)), dim3(kThreads),
                          sizeof(float) * 2 * static_cast<std::size_t>(heads.pairs)};
  const bool vectors = is_aligned(x) && heads.pairs % kEight == 0 && heads.stride % kEight == 0 &&
                       heads.head_dim % kEight == 0;
  with_vectors(vectors, [&](auto chosen) {
    launch<turn<chosen()>>(launcher.stream, shape, OperandRanges(kernel), heads, turns, direction, reals(x));
  });
}

}  // namespace

void rotary_forward(const Kernel& kernel, const Launcher& launcher) { rotate(kernel, launcher, 1); }

void rotary_backward(const Kernel& kernel, const Launcher& launcher) { rotate(kernel, launcher, -1); }

}  // namespace zeroplan::executor::cuda
