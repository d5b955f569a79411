#include <benchmark/benchmark.h>
#include <cblas.h>

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <thread>
#include <utility>
#include <vector>

#include "executor/device/cpu/cpu_device.hpp"
#include "tests/benchmarks/executor/median.hpp"
#include "tests/benchmarks/executor/training.hpp"

// The products of GPT-2 124M (256 tokens, fp32) through the device and by one call of OpenBLAS with as many
// threads, in turns. Both set y = x W^T and dx = dy W and add to dW += dy^T x; the device gets no bias, as
// OpenBLAS has none. Counters: medians of both in GFLOP/s, `share`, the device's rate by OpenBLAS's, and the
// same of both's fastest calls, which other programs disturb less.

namespace {

using namespace zeroplan;
using executor::Kernel;
using executor::Tensor;
using program::Op;

struct Shape {
  std::int64_t tokens, outputs, inputs;
};

struct Operands {
  explicit Operands(const Shape& s)
      : shape(s),
        x(size(s.tokens * s.inputs)),
        weight(size(s.outputs * s.inputs)),
        y(size(s.tokens * s.outputs)) {
    fill(x);
    fill(weight);
    fill(y);
  }
  static std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }
  static void fill(std::vector<float>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 17) * 0.125F - 1.0F;
  }
  double flops() const {
    return 2.0 * static_cast<double>(shape.tokens * shape.outputs) * static_cast<double>(shape.inputs);
  }

  Shape shape;
  std::vector<float> x, weight, y;
};

Tensor tensor_of(std::vector<float>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), program::DataType::fp32,
          static_cast<Elements>(values.size())};
}

void by_device(executor::Device& device, Op op, Operands& o) {
  Kernel kernel;
  kernel.op = op;
  kernel.flags = program::kOverwrite;
  kernel.dims = {o.shape.tokens, o.shape.outputs, o.shape.inputs};
  const Tensor x = tensor_of(o.x);
  const Tensor weight = tensor_of(o.weight);
  const Tensor y = tensor_of(o.y);
  if (op == Op::matmul) kernel.operands = {x, weight, Tensor{}, y};
  if (op == Op::matmul_input_gradient) kernel.operands = {y, weight, x};
  if (op == Op::matmul_weight_gradient) kernel.operands = {y, x, weight};
  device.execute(kernel, program::Stream::compute, {});
}

void by_openblas(Op op, Operands& o) {
  const auto m = static_cast<blasint>(o.shape.tokens);
  const auto n = static_cast<blasint>(o.shape.outputs);
  const auto k = static_cast<blasint>(o.shape.inputs);
  float* x = o.x.data();
  float* weight = o.weight.data();
  float* y = o.y.data();
  if (op == Op::matmul)
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, x, k, weight, k, 0, y, n);
  if (op == Op::matmul_input_gradient)
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, k, n, 1, y, n, weight, k, 0, x, k);
  if (op == Op::matmul_weight_gradient)
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, k, m, 1, y, n, x, k, 1, weight, k);
}

// OpenBLAS's idle threads go on asking for work for about 30 ms and would take time from what runs next.
void let_openblas_sleep(int threads) {
  if (threads > 1) std::this_thread::sleep_for(std::chrono::milliseconds(60));
}

// {threads, outputs, inputs}
void compare(benchmark::State& state, Op op) {
  const auto threads = static_cast<int>(state.range(0));
  const auto device = executor::make_cpu_device({.threads = threads});
  Operands operands({.tokens = 256, .outputs = state.range(1), .inputs = state.range(2)});
  constexpr double kSecondsATurn = 0.3;  // long, as a processor that slept may take 10 ms to wake
  std::vector<double> ours;
  std::vector<double> theirs;
  const auto turn = [&](std::vector<double>& seconds, const auto& product) {
    product();  // the caches are as its own last call left them
    double total = 0;
    while (total < kSecondsATurn) {
      seconds.push_back(benchmarks::seconds_of(product));
      total += seconds.back();
    }
    return total;
  };
  for (auto _ : state) {
    openblas_set_num_threads(threads);
    turn(theirs, [&] { by_openblas(op, operands); });
    openblas_set_num_threads(1);
    let_openblas_sleep(threads);
    state.SetIterationTime(turn(ours, [&] { by_device(*device, op, operands); }));
    Operands::fill(operands.weight);  // sums would grow without bound
    Operands::fill(operands.y);
  }
  const double device_rate = operands.flops() / benchmarks::median(ours) / 1e9;
  const double openblas_rate = operands.flops() / benchmarks::median(theirs) / 1e9;
  state.counters["device"] = device_rate;
  state.counters["openblas"] = openblas_rate;
  state.counters["share"] = device_rate / openblas_rate;
  state.counters["fastest"] =
      *std::min_element(theirs.begin(), theirs.end()) / *std::min_element(ours.begin(), ours.end());
}

// {outputs, inputs} of attention's two products, the MLP's two and the head.
void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"threads", "outputs", "inputs"});
  for (const auto& [outputs, inputs] : std::initializer_list<std::pair<std::int64_t, std::int64_t>>{
           {2304, 768}, {768, 768}, {3072, 768}, {768, 3072}, {50257, 768}}) {
    benchmark->Args({1, outputs, inputs});
    if (benchmarks::processors() > 1) benchmark->Args({benchmarks::processors(), outputs, inputs});
  }
  benchmark->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(9);
}
BENCHMARK_CAPTURE(compare, matmul, Op::matmul)->Apply(shapes);
BENCHMARK_CAPTURE(compare, matmul_input_gradient, Op::matmul_input_gradient)->Apply(shapes);
BENCHMARK_CAPTURE(compare, matmul_weight_gradient, Op::matmul_weight_gradient)->Apply(shapes);

}  // namespace
