#include <algorithm>
#include <cmath>

#include "executor/device/cpu/kernels.hpp"
#include "executor/device/cpu/operands.hpp"
#include "executor/device/cpu/wide.hpp"
#include "executor/step_scalars.hpp"

// The rule follows from the states there are: none, SGD; one, SGD with momentum (m = beta1 m + g, w -= rate
// m); two, Adam (arXiv 1412.6980) with decoupled weight decay (arXiv 1711.05101). An element whose gradient
// is NaN is left alone.
namespace zeroplan::executor::cpu {

namespace {

struct Rates {
  float rate = 0;
  float decay = 1;  // what is left of a weight
  float beta1 = 0, beta2 = 0;
  float step_size = 0;            // rate / (1 - beta1^t)
  float variance_correction = 1;  // 1 / sqrt(1 - beta2^t)
  float epsilon = 0;
};

Rates rates_of(const StepSettings& settings, const Tensor& scalars) {
  Rates rates;
  rates.rate = scalar(scalars, kLearningRate);
  rates.decay = static_cast<float>(1.0 - static_cast<double>(rates.rate) * settings.weight_decay);
  rates.beta1 = settings.beta1;
  rates.beta2 = settings.beta2;
  rates.step_size = scalar(scalars, kStepSize);
  rates.variance_correction = scalar(scalars, kVarianceCorrection);
  rates.epsilon = settings.epsilon;
  return rates;
}

void sgd(const float* g, float* w, Elements count, const Rates& rates) {
  const Rates r = rates;
  wide([=]() ZEROPLAN_INLINE {
    ZEROPLAN_SIMD
    for (Elements i = 0; i < count; ++i) {
      const float weight = w[i] * r.decay - r.rate * g[i];
      w[i] = g[i] == g[i] ? weight : w[i];
    }
  });
}

void sgd_with_momentum(const float* g, float* w, float* m, Elements count, const Rates& rates) {
  const Rates r = rates;
  wide([=]() ZEROPLAN_INLINE {
    ZEROPLAN_SIMD
    for (Elements i = 0; i < count; ++i) {
      const float momentum = r.beta1 * m[i] + g[i];
      const float weight = w[i] * r.decay - r.rate * momentum;
      const bool usable = g[i] == g[i];
      m[i] = usable ? momentum : m[i];
      w[i] = usable ? weight : w[i];
    }
  });
}

void adam(const float* g, float* w, float* m, float* v, Elements count, const Rates& rates) {
  const Rates r = rates;
  wide([=]() ZEROPLAN_INLINE {
    ZEROPLAN_SIMD
    for (Elements i = 0; i < count; ++i) {
      const float momentum = r.beta1 * m[i] + (1.0F - r.beta1) * g[i];
      const float variance = r.beta2 * v[i] + (1.0F - r.beta2) * g[i] * g[i];
      const float denominator = std::sqrt(variance) * r.variance_correction + r.epsilon;
      const float weight = w[i] * r.decay - r.step_size * momentum / denominator;
      const bool usable = g[i] == g[i];
      m[i] = usable ? momentum : m[i];
      v[i] = usable ? variance : v[i];
      w[i] = usable ? weight : w[i];
    }
  });
}

// Calls update(offset, count, rates) for the parts of elements [at, at + count) that decay and that do not.
template <class Update>
void over_decay(std::span<const ElementRange> undecayed, Elements at, Elements count, const Rates& rates,
                const Update& update) {
  Rates without_decay = rates;
  without_decay.decay = 1;
  const Elements end = at + count;
  Elements done = at;
  auto range = std::partition_point(undecayed.begin(), undecayed.end(),
                                    [at](const ElementRange& one) { return one.end <= at; });
  for (; range != undecayed.end() && range->begin < end; ++range) {
    const Elements begin = std::max(range->begin, at);
    const Elements stop = std::min(range->end, end);
    if (done < begin) update(done - at, begin - done, rates);
    update(begin - at, stop - begin, without_decay);
    done = stop;
  }
  if (done < end) update(done - at, end - done, rates);
}

}  // namespace

void optimizer_update(const Kernel& kernel, const StepSettings& settings, Workers& workers) {
  const Elements begin = kernel.iteration * kernel.dims[1];
  const Elements count = std::clamp<Elements>(kernel.dims[0] - begin, 0, kernel.dims[1]);
  const Tensor& gradient = kernel.operands[0];
  const Tensor master = kernel.operands[1];
  const Tensor& parameter = kernel.operands[2];
  const Tensor first = kernel.operands[3];
  const Tensor second = kernel.operands[4];
  if (kernel.operands[5]) refuse(kernel, "optimizers with three states are not there");
  const Tensor& weights = master ? master : parameter;
  if (!kernel.scalars) refuse(kernel, "the scalars with the step's settings are missing");
  const Rates rates = rates_of(settings, kernel.scalars);
  over_blocks(workers, count, [&](Elements offset, Elements part, Scratch& scratch) {
    const Elements at = begin + offset;
    const float* g = read(gradient, offset, part, scratch);
    float* w = begin_update(weights, at, part, scratch);
    float* m = first ? begin_update(first, at, part, scratch) : nullptr;
    float* v = second ? begin_update(second, at, part, scratch) : nullptr;
    over_decay(kernel.undecayed, at, part, rates, [&](Elements i, Elements n, const Rates& of_part) {
      if (second) {
        adam(g + i, w + i, m + i, v + i, n, of_part);
      } else if (first) {
        sgd_with_momentum(g + i, w + i, m + i, n, of_part);
      } else {
        sgd(g + i, w + i, n, of_part);
      }
    });
    if (first) finish_write(first, at, part, m);
    if (second) finish_write(second, at, part, v);
    finish_write(weights, at, part, w);
    if (master) finish_write(parameter, at, part, w);
  });
}

}  // namespace zeroplan::executor::cpu
