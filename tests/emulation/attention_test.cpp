#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "bare_device.hpp"
#include "block/block.hpp"
#include "executor/device/cuda/cuda_device.hpp"
#include "executor/device/cuda/dispatch.hpp"
#include "runtime/machine.hpp"
#include "tests/executor/step_table.hpp"

// Attention's kernels for GPUs on emulated blocks, in several orders of lanes: the head sizes that take tensor cores, and
// large heads that do not. The table of kernels has the small ones.
using namespace zeroplan;
using namespace zeroplan::executor;
using namespace zeroplan::executor::test;
using emulation::LaneOrder;

namespace {

// dqkv in double precision, in qkv's layout, of what attention() found.
Values exact_gradient(const AttentionShape& s, const AttentionInputs& inputs, const AttentionResult& result) {
  Values gradient(inputs.packed.size());
  const Values& from = inputs.query_key.empty() ? inputs.packed : inputs.query_key;
  const std::int64_t stride = inputs.query_key.empty() ? s.packed() : (s.heads + s.kv_heads) * s.head_dim;
  const double scale =
      s.model.attention_scale > 0 ? s.model.attention_scale : 1 / std::sqrt(static_cast<double>(s.head_dim));
  const double cap = s.model.attention_soft_cap;
  for (std::int64_t at = 0; at < s.sequences; ++at) {
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const std::int64_t kv = head / (s.heads / s.kv_heads);
      for (std::int64_t i = 0; i < s.sequence; ++i) {
        const std::int64_t row = at * s.sequence + i;
        const double* p = &result.probabilities[index(((at * s.heads + head) * s.sequence + i) * s.sequence)];
        const double* dy = &inputs.dy[index(row * s.context() + head * s.head_dim)];
        const auto value_of = [&](std::int64_t j) {
          return index((at * s.sequence + j) * s.packed() + (s.heads + s.kv_heads + kv) * s.head_dim);
        };
        Values d_probabilities(index(s.sequence));
        double row_dot = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          for (std::int64_t d = 0; d < s.head_dim; ++d) {
            d_probabilities[index(j)] += dy[d] * inputs.packed[value_of(j) + index(d)];
            gradient[value_of(j) + index(d)] += p[j] * dy[d];
          }
          row_dot += p[j] * d_probabilities[index(j)];
        }
        const double* query = &from[index(row * stride + head * s.head_dim)];
        for (std::int64_t j = 0; j <= i; ++j) {
          const std::int64_t other = at * s.sequence + j;
          const double* key = &from[index(other * stride + (s.heads + kv) * s.head_dim)];
          double d_score = p[j] * (d_probabilities[index(j)] - row_dot) * scale;
          if (cap > 0) {
            const double t = std::tanh(std::inner_product(query, query + s.head_dim, key, 0.0) * scale / cap);
            d_score *= 1 - t * t;
          }
          for (std::int64_t d = 0; d < s.head_dim; ++d) {
            gradient[index(row * s.packed() + head * s.head_dim + d)] += d_score * key[d];
            gradient[index(other * s.packed() + (s.heads + kv) * s.head_dim + d)] += d_score * query[d];
          }
        }
      }
    }
  }
  return gradient;
}

struct Orders {
  Orders() = default;
  ~Orders() { emulation::set_lane_order(LaneOrder::forward); }
  Orders(const Orders&) = delete;
  Orders& operator=(const Orders&) = delete;
  Orders(Orders&&) = delete;
  Orders& operator=(Orders&&) = delete;

  std::vector<LaneOrder> all{LaneOrder::forward, LaneOrder::reverse, LaneOrder::random};
};

// What one order of lanes gave: {context, log-sum-exp, dqkv}.
using Given = std::vector<Values>;

Given run_flash(Device& device, const AttentionShape& s, const AttentionInputs& inputs, DataType type) {
  KernelHarness h(device);
  h.settings.model = s.model;
  const std::array<std::int64_t, 4> dims = {s.sequences, s.sequence, s.heads, s.head_dim};
  const Tensor packed = h.upload(inputs.packed, type);
  const Tensor query_key = inputs.query_key.empty() ? Tensor{} : h.upload(inputs.query_key, type);
  const Tensor context = h.zeros(index(s.tokens() * s.context()), type);
  const Tensor log_sum_exp = h.zeros(index(s.tokens() * s.heads), DataType::fp32);
  h.run(Op::attention_forward, dims, {packed, query_key, context, log_sum_exp}, 0, s.kv_heads);
  const Tensor dy = h.upload(inputs.dy, type);
  const Tensor dots = h.zeros(index(s.tokens() * s.heads), DataType::fp32);
  h.run(Op::attention_row_dot, dims, {dy, context, dots}, 0, s.kv_heads);
  const Tensor gradient = h.zeros(inputs.packed.size(), type);
  h.run(Op::attention_backward, dims, {dy, packed, query_key, log_sum_exp, dots, gradient}, 0, s.kv_heads);
  return {h.download(context), h.download(log_sum_exp), h.download(gradient)};
}

// What the issue asks of kernels against double precision: the root mean square of the errors, relative.
double relative_error(DataType type) {
  if (type == DataType::fp32) return 1e-5;
  return type == DataType::fp16 ? 2e-3 : 1e-2;
}

// Single elements may be off by `times` of what one rounding costs: probabilities and gradients of scores are rounded on
// the way to tensor cores.
void expect_near(const std::string& what, const Values& got, const Values& want, DataType type,
                 double times) {
  expect_close(what, got, want, times * tolerance(type));
  double errors = 0;
  for (std::size_t i = 0; i < got.size(); ++i) errors += (got[i] - want[i]) * (got[i] - want[i]);
  CAPTURE(what);
  CHECK(std::sqrt(errors / dot(want, want)) < relative_error(type));
}

// Every order of lanes gives the same bits, and they are near enough to double precision.
void check_flash(Device& device, const AttentionShape& s, bool normed, DataType type) {
  CAPTURE(s.sequence);
  CAPTURE(s.head_dim);
  CAPTURE(name_of_type(type));
  const AttentionInputs inputs = attention_inputs(s, normed, type);
  const AttentionResult want = attention(inputs.packed, inputs.query_key, s);
  const Orders orders;
  Given first;
  for (const LaneOrder order : orders.all) {
    CAPTURE(static_cast<int>(order));
    emulation::set_lane_order(order, 11);
    Given given = run_flash(device, s, inputs, type);
    if (!first.empty()) {
      CHECK(given == first);
      continue;
    }
    expect_near("context", given[0], want.context, type, 1);
    expect_close("log-sum-exp", given[1], want.log_sum_exp, DataType::fp32);
    expect_near("dqkv", given[2], exact_gradient(s, inputs, want), type, 3);
    first = std::move(given);
  }
}

AttentionShape shape_of(std::int64_t sequence, std::int64_t head_dim) {
  return {1, sequence, 2, 1, head_dim};
}

}  // namespace

TEST_CASE(
    "attention on emulated GPUs: the gradient that this test compares with is that of central differences") {
  AttentionShape s{2, 9, 4, 2, 3};
  s.model.attention_soft_cap = 1.5;
  s.model.alibi_heads = 4;
  s.model.window.kind = program::AttentionWindow::Kind::sliding;
  s.model.window.size = 5;
  for (const bool normed : {false, true}) {
    const AttentionInputs inputs = attention_inputs(s, normed, DataType::fp32);
    const AttentionResult result = attention(inputs.packed, inputs.query_key, s);
    expect_close("dqkv", exact_gradient(s, inputs, result), attention_gradient(s, inputs, 1), 1e-7);
  }
}

TEST_CASE("attention on emulated GPUs: head sizes that take tensor cores") {
  const std::unique_ptr<Device> device = make_cuda_device({});
  for (const DataType type : {DataType::bf16, DataType::fp16}) {
    for (const std::int64_t head_dim : {64, 80, 96, 128, 256})
      check_flash(*device, shape_of(140, head_dim), false, type);
    for (const std::int64_t sequence : {1, 15, 64, 65})
      check_flash(*device, shape_of(sequence, 64), false, type);
    check_flash(*device, {2, 33, 4, 2, 128}, true, type);
  }
}

TEST_CASE("attention on emulated GPUs: tensor cores in windows, capped and biased") {
  const std::unique_ptr<Device> device = make_cuda_device({});
  for (const std::int64_t head_dim : {64, 256}) {
    for (AttentionShape s : attention_forms()) {
      s.head_dim = head_dim;
      s.sequence = std::min<std::int64_t>(s.sequence, 150);
      check_flash(*device, s, false, DataType::bf16);
    }
  }
}

TEST_CASE("attention on emulated GPUs: heads of fp32 and of other sizes take the plain kernels") {
  const std::unique_ptr<Device> device = make_cuda_device({});
  check_flash(*device, shape_of(70, 64), false, DataType::fp32);
  check_flash(*device, shape_of(40, 256), true, DataType::fp32);
  check_flash(*device, shape_of(40, 72), false, DataType::bf16);
  check_flash(*device, shape_of(20, 512), false, DataType::fp16);
  for (const AttentionShape& s : attention_forms()) check_flash(*device, s, false, DataType::fp32);
}

// The module for V100 has other products than those for later cards: mma.m8n8k4, of fp16 alone.
TEST_CASE("attention on emulated GPUs: tensor cores of V100") {
  const emulation::Machine machine({.gpus = {emulation::Gpu{.sm = 70}}});
  cuda::Products products;
  BareDevice device(0, [&](const Kernel& kernel, cudaStream_t stream) {
    cuda::Launcher launcher;
    launcher.stream = stream;
    launcher.sm = 70;
    cuda::dispatch(kernel, launcher, products);
  });
  const auto starts = [&](const std::string& kernel) {
    const std::vector<std::string> history = machine.history();
    return std::count_if(history.begin(), history.end(),
                         [&](const std::string& one) { return one.find(kernel) != std::string::npos; });
  };
  for (const std::int64_t head_dim : {64, 80, 96, 128, 256})
    check_flash(device, shape_of(140, head_dim), false, DataType::fp16);
  for (const std::int64_t sequence : {1, 15, 65})
    check_flash(device, shape_of(sequence, 64), false, DataType::fp16);
  check_flash(device, {2, 33, 4, 2, 128}, true, DataType::fp16);
  for (AttentionShape s : attention_forms()) {
    s.head_dim = 64;
    s.sequence = std::min<std::int64_t>(s.sequence, 150);
    check_flash(device, s, false, DataType::fp16);
  }
  CHECK(starts(" flash_") > 0);
  CHECK(starts(" plain_") == 0);
  check_flash(device, shape_of(33, 64), false, DataType::bf16);
  CHECK(starts(" plain_") > 0);
  CHECK(machine.problems().empty());
}
