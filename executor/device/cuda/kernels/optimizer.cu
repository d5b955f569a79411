#include <algorithm>
#include <array>

#include "executor/device/cuda/checks.hpp"
#include "executor/device/cuda/kernels.hpp"
#include "executor/device/cuda/kernels/reals.cuh"
#include "executor/device/step_rules.hpp"

// The rule follows from the states there are: none, SGD; one, SGD with momentum (m = beta1 m + g, w -= rate
// m); two, Adam (arXiv 1412.6980) with decoupled weight decay (arXiv 1711.05101). An element whose gradient
// is NaN is left alone. Sums of products are fused where it says so and nowhere else: an element's bits do not depend
// on which code, with vectors or without, has it.
namespace zeroplan::executor::cuda {

namespace {

constexpr int kMostRanges = 32;

// Elements of a part that do not decay, rising.
struct Undecayed {
  Index begin[kMostRanges], end[kMostRanges];
  int count;
};

struct Rule {
  float beta1, beta2, epsilon, weight_decay;
};

struct States {
  Reals first, second;

  template <class Function>
  States translated(const Function& function) const {
    return {first.translated(function), second.translated(function)};
  }
};

// w - step.
__device__ __forceinline__ float moved(float w, float decay, float step) {
  return __fsub_rn(__fmul_rn(w, decay), step);
}

template <int kStates, bool kVectors>
__global__ void __launch_bounds__(kFlatThreads, 3)
    update(Rule rule, Undecayed undecayed, Reals gradient, Reals weights, Reals copy, States states,
           const float* scalars, Index elements) {
  const float rate = scalar_at(scalars, kLearningRate);
  const float step_size = scalar_at(scalars, kStepSize);
  const float correction = scalar_at(scalars, kVarianceCorrection);
  const auto decay =
      static_cast<float>(1.0 - static_cast<double>(rate) * static_cast<double>(rule.weight_decay));
  over_flat<kVectors>(elements, [&](const auto& at) {
    const auto fetched_g = fetch(gradient, 0, at);
    const auto fetched_w = fetch(weights, 0, at);
    [[maybe_unused]] auto fetched_m = fetched_g;
    [[maybe_unused]] auto fetched_v = fetched_g;
    if constexpr (kStates > 0) fetched_m = fetch(states.first, 0, at);
    if constexpr (kStates > 1) fetched_v = fetch(states.second, 0, at);
    unsigned stays = 0;
    for (int range = 0; range < undecayed.count; ++range) {
      if (at[kEight - 1] < undecayed.begin[range] || at.first >= undecayed.end[range]) continue;
      ZEROPLAN_UNROLL
      for (int i = 0; i < kEight; ++i) {
        if (at[i] >= undecayed.begin[range] && at[i] < undecayed.end[range]) stays |= 1U << i;
      }
    }
    float g[kEight];
    float w[kEight];
    [[maybe_unused]] float m[kEight] = {};
    [[maybe_unused]] float v[kEight] = {};
    unpack(fetched_g, gradient, g);
    unpack(fetched_w, weights, w);
    if constexpr (kStates > 0) unpack(fetched_m, states.first, m);
    if constexpr (kStates > 1) unpack(fetched_v, states.second, v);
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i) {
      if (g[i] != g[i]) continue;
      const float kept = (stays >> i & 1U) != 0 ? 1.0F : decay;
      if constexpr (kStates == 0) {
        w[i] = moved(w[i], kept, __fmul_rn(rate, g[i]));
      } else if constexpr (kStates == 1) {
        m[i] = __fmaf_rn(rule.beta1, m[i], g[i]);
        w[i] = moved(w[i], kept, __fmul_rn(rate, m[i]));
      } else {
        m[i] = __fmaf_rn(rule.beta1, m[i], __fmul_rn(1.0F - rule.beta1, g[i]));
        v[i] = __fmaf_rn(rule.beta2, v[i], __fmul_rn(__fmul_rn(1.0F - rule.beta2, g[i]), g[i]));
        const float denominator = __fmaf_rn(sqrtf(v[i]), correction, rule.epsilon);
        w[i] = moved(w[i], kept, __fdiv_rn(__fmul_rn(step_size, m[i]), denominator));
      }
    }
    if constexpr (kStates > 0) write(states.first, 0, at, m);
    if constexpr (kStates > 1) write(states.second, 0, at, v);
    write(weights, 0, at, w);
    if (copy.data != nullptr) write(copy, 0, at, w);
  });
}

struct Operands {
  Tensor gradient, weights, copy, first, second;
};

// Elements [begin, begin + count) of the chunk, which begins at `at` of the vectors.
Operands operands_of(const Kernel& kernel, Elements at, Elements begin, Elements count) {
  const Tensor& master = kernel.operands[1];
  const Tensor& parameter = kernel.operands[2];
  const auto part = [&](const Tensor& tensor) { return part_of(tensor, at + begin, count); };
  return {part_of(kernel.operands[0], begin, count), part(master ? master : parameter),
          master ? part(parameter) : Tensor{}, part(kernel.operands[3]), part(kernel.operands[4])};
}

template <int kStates>
void start(const Kernel& kernel, const Launcher& launcher, const Operands& operands,
           const Undecayed& undecayed) {
  const StepSettings& settings = settings_of(kernel);
  const Rule rule{settings.beta1, settings.beta2, settings.epsilon, settings.weight_decay};
  const Elements count = operands.weights.elements;
  const bool vectors =
      are_aligned(operands.gradient, operands.weights, operands.copy, operands.first, operands.second);
  with_vectors(vectors, [&](auto chosen) {
    launch<update<kStates, chosen()>>(
        launcher.stream, flat_shape(count), OperandRanges(kernel), rule, undecayed, reals(operands.gradient),
        reals(operands.weights), reals(operands.copy), States{reals(operands.first), reals(operands.second)},
        reinterpret_cast<const float*>(kernel.scalars.data), count);
  });
}

}  // namespace

void optimizer_update(const Kernel& kernel, const Launcher& launcher) {
  const Elements at = kernel.iteration * kernel.dims[1];
  const Elements count = std::clamp<Elements>(kernel.dims[0] - at, 0, kernel.dims[1]);
  if (kernel.operands[5]) refuse(kernel, "optimizers with three states are not there");
  if (!kernel.scalars) refuse(kernel, "the scalars with the step's settings are missing");
  // A launch takes so many ranges without decay as an argument holds; what has more is done in several.
  auto range = std::partition_point(kernel.undecayed.begin(), kernel.undecayed.end(),
                                    [at](const ElementRange& one) { return one.end <= at; });
  for (Elements begin = 0; begin < count;) {
    Undecayed undecayed{};
    Elements end = count;
    for (; range != kernel.undecayed.end() && range->begin < at + count; ++range) {
      if (undecayed.count == kMostRanges) {
        end = range->begin - at;
        break;
      }
      undecayed.begin[undecayed.count] = range->begin - at - begin;
      undecayed.end[undecayed.count++] = range->end - at - begin;
    }
    const Operands operands = operands_of(kernel, at, begin, end - begin);
    if (operands.second) {
      start<2>(kernel, launcher, operands, undecayed);
    } else if (operands.first) {
      start<1>(kernel, launcher, operands, undecayed);
    } else {
      start<0>(kernel, launcher, operands, undecayed);
    }
    begin = end;
  }
}

}  // namespace zeroplan::executor::cuda
