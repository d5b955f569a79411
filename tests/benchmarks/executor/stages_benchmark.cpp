#include <benchmark/benchmark.h>

#include <array>
#include <memory>
#include <vector>

#include "executor/communicator/threads/thread_communicator.hpp"
#include "executor/device/cpu/cpu_device.hpp"
#include "tests/benchmarks/executor/median.hpp"
#include "tests/benchmarks/executor/training.hpp"

// One training step of a GPT with 28 million parameters under ZeRO stages 0 and 3: 2 ranks that are threads
// of one thread each, 4 sequences of 128 tokens a rank, fp32, Adam. The stages take turns. Counters: medians
// in milliseconds and their ratio.

namespace {

using namespace zeroplan;

constexpr std::array kStages = {0, 3};

void zero_stages(benchmark::State& state) {
  const describe::Model model = describe::resolve_model("layers=8,hidden=512,heads=8,vocab=8192,ffn=2048");
  std::array<std::vector<double>, kStages.size()> seconds;
  executor::run_ranks(2, executor::ThreadOptions{}, [&](executor::Communicator& world) {
    std::array<std::unique_ptr<executor::Rank>, kStages.size()> ranks;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      describe::Plan plan = benchmarks::fp32_plan(4, 128);
      plan.data_parallel = 2;
      plan.zero_stage = kStages[i];
      ranks[i] = benchmarks::make_rank(model, plan, executor::make_cpu_device({}), world);
    }
    benchmarks::CountingBatches batches(model.vocabulary);
    const auto round = [&](bool measured) {
      double total = 0;
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        world.barrier();
        const double taken = benchmarks::seconds_of([&] {
          ranks[i]->step(benchmarks::adam_settings(), batches);
          world.barrier();
        });
        if (measured && world.rank() == 0) seconds[i].push_back(taken);
        total += taken;
      }
      return total;
    };
    round(false);  // touches the memory
    // Both ranks run as many rounds, fixed before; rank 0 has the benchmark's loop.
    if (world.rank() == 0) {
      for (auto _ : state) state.SetIterationTime(round(true));
    } else {
      for (benchmark::IterationCount i = 0; i < state.max_iterations; ++i) round(true);
    }
  });
  const double zero0 = benchmarks::median(seconds[0]);
  const double zero3 = benchmarks::median(seconds[1]);
  state.counters["zero0"] = 1e3 * zero0;
  state.counters["zero3"] = 1e3 * zero3;
  state.counters["ratio"] = zero3 / zero0;
}
BENCHMARK(zero_stages)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(5);

}  // namespace
