#include <benchmark/benchmark.h>

#include "planner/describe/model/model.hpp"
#include "planner/describe/plan/plan.hpp"
#include "planner/predict/kernels.hpp"
#include "planner/predict/memory.hpp"
#include "planner/predict/prediction.hpp"
#include "planner/predict/time.hpp"
#include "planner/predict/traffic.hpp"
#include "planner/predict/work.hpp"
#include "planner/program/compile.hpp"

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
  plan.bucket_bytes = plan.engine.bucket_bytes;
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
