#include <benchmark/benchmark.h>

#include <algorithm>

#include "planner/describe/model/model.hpp"
#include "planner/describe/plan/plan.hpp"
#include "planner/predict/kernels.hpp"
#include "planner/predict/memory.hpp"
#include "planner/predict/prediction.hpp"
#include "planner/predict/time.hpp"
#include "planner/predict/traffic.hpp"
#include "planner/predict/work.hpp"
#include "planner/program/compile.hpp"
#include "planner/solve/evaluator.hpp"

// What the planner's core costs: one whole plan compiled into a step program and read for memory, traffic and
// FLOPs.

namespace {

using namespace zeroplan;

describe::Plan gpt3_plan() {
  describe::Plan plan;
  plan.data_parallel = 128;
  plan.tensor_parallel = 8;
  plan.zero_stage = 1;
  plan.sequence = 2048;
  plan.precision = describe::Precision::bf16;
  plan.optimizer = describe::find_optimizer("adam");
  plan.engine = describe::find_engine("native");
  plan.bucket_bytes = plan.engine->bucket_bytes;
  return plan;
}

Bytes compile_and_read(const describe::Model& model, const describe::Plan& plan,
                       program::StepProgram& program) {
  program::compile_into(model, plan, {}, program);
  const predict::MemoryProfile memory = predict::read_memory(program);
  const predict::Traffic traffic = predict::read_traffic(program);
  const predict::Work work = predict::read_work(program);
  benchmark::DoNotOptimize(traffic.entries.data());
  benchmark::DoNotOptimize(work.hardware);
  return memory.peak;
}

void run(benchmark::State& state, const describe::Model& model, const describe::Plan& plan) {
  program::StepProgram program;
  for (auto _ : state) benchmark::DoNotOptimize(compile_and_read(model, plan, program));
  state.counters["instructions"] = static_cast<double>(program.code.size());
}

void gpt3_175b(benchmark::State& state) {
  const describe::Model model = describe::resolve_model("gpt3-175b");
  describe::Plan plan = gpt3_plan();
  plan.zero_stage = static_cast<int>(state.range(0));
  plan.recompute = state.range(1) != 0 ? describe::Recompute::full : describe::Recompute::none;
  run(state, model, plan);
}
BENCHMARK(gpt3_175b)->ArgNames({"zero", "recompute"})->ArgsProduct({{0, 1, 2, 3}, {0, 1}});

// Memory, traffic and time of one plan together; with `exposed`, also what of the step is exposed.
void with_time(benchmark::State& state) {
  const describe::Model model = describe::resolve_model("gpt3-175b");
  describe::Plan plan = gpt3_plan();
  plan.zero_stage = static_cast<int>(state.range(0));
  plan.engine = describe::find_engine("megatron");
  const describe::Cluster cluster = describe::resolve_cluster("dgx-a100", 128, {});
  program::StepProgram program;
  for (auto _ : state) {
    benchmark::DoNotOptimize(compile_and_read(model, plan, program));
    const predict::KernelRates rates = predict::kernel_rates(cluster.device, plan);
    if (state.range(1) != 0) {
      benchmark::DoNotOptimize(predict::read_time(program, cluster, rates).seconds);
    } else {
      benchmark::DoNotOptimize(predict::read_step_seconds(program, cluster, rates));
    }
  }
}
BENCHMARK(with_time)->ArgNames({"zero", "exposed"})->ArgsProduct({{0, 1, 2, 3}, {0, 1}});

// From options to a prediction, as a search over plans asks it.
void resolve_and_predict(benchmark::State& state) {
  const describe::Model model = describe::resolve_model("llama2-13b");
  describe::PlanOptions options;
  options.zero = static_cast<int>(state.range(0));
  options.nodes = 4;
  for (auto _ : state) {
    const describe::ResolvedPlan resolved = describe::resolve_plan(options, model, "dgx-a100");
    benchmark::DoNotOptimize(predict::predict(model, resolved.plan, resolved.cluster).peak_bytes);
  }
}
BENCHMARK(resolve_and_predict)->ArgName("zero")->Arg(0)->Arg(3)->Unit(benchmark::kMicrosecond);

// 10,240 neighbours of a plan, each with everything that is said of it, by an evaluator that knows nothing yet: 160 of
// other stages, tensor-parallel degrees and nodes, and of each 64 with other accumulation; or, with (nearly) the same
// global batch, 64 with other micro-batches, of which each is compiled.
void neighbours(benchmark::State& state) {
  const describe::Model model = describe::resolve_model("llama2-13b");
  describe::PlanOptions options;
  const bool same_batch = state.range(0) != 0;
  constexpr std::int64_t kSequences = 20160;  // the least common multiple of 1 to 10, times 8
  std::int64_t plans = 0;
  std::size_t compiled = 0;
  for (auto _ : state) {
    solve::Evaluator evaluator(model, options, "dgx-a100");
    double best = 0;
    const auto ask = [&](const solve::Neighbour& neighbour) {
      const auto evaluation = evaluator.evaluate(neighbour);
      if (evaluation) best = std::max(best, evaluation->tokens_per_second());
      ++plans;
    };
    for (int stage = 0; stage <= 3; ++stage) {
      for (std::int64_t tp = 1; tp <= 8; tp *= 2) {
        for (std::int64_t nodes = 1; nodes <= 10; ++nodes) {
          for (std::int64_t times = 1; times <= 64; ++times) {
            const std::int64_t accumulation = kSequences * tp / (8 * nodes * times);
            same_batch ? ask({stage, nodes, tp, times, std::max<std::int64_t>(1, accumulation)})
                       : ask({stage, nodes, tp, 1, times});
          }
        }
      }
    }
    benchmark::DoNotOptimize(best);
    compiled = evaluator.compiled();
  }
  state.counters["each"] = benchmark::Counter(static_cast<double>(plans),
                                              benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["compiled"] = static_cast<double>(compiled);
}
BENCHMARK(neighbours)->ArgName("same_batch")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

// Depth must not matter.
void layers(benchmark::State& state) {
  describe::Model model = describe::resolve_model("gpt3-175b");
  model.layers = state.range(0);
  run(state, model, gpt3_plan());
}
BENCHMARK(layers)->Arg(10)->Arg(1000)->Arg(10)->Arg(1000);

void accumulation(benchmark::State& state) {
  const describe::Model model = describe::resolve_model("gpt3-175b");
  describe::Plan plan = gpt3_plan();
  plan.gradient_accumulation = state.range(0);
  run(state, model, plan);
}
BENCHMARK(accumulation)->Arg(1)->Arg(64);

}  // namespace
