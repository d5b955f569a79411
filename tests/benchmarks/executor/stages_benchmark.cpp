#include <benchmark/benchmark.h>

#include <array>
#include <memory>
#include <utility>
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
  std::vector<std::vector<double>> seconds;
  executor::run_ranks(2, executor::ThreadOptions{}, [&](executor::Communicator& world) {
    std::array<std::unique_ptr<executor::Rank>, kStages.size()> ranks;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      describe::Plan plan = benchmarks::fp32_plan(4, 128);
      plan.data_parallel = 2;
      plan.zero_stage = kStages[i];
      ranks[i] = benchmarks::make_rank(model, plan, executor::make_cpu_device({}), world);
    }
    auto own = benchmarks::take_turns(state, world, ranks, model.vocabulary);
    if (world.rank() == 0) seconds = std::move(own);
  });
  const double zero0 = benchmarks::median(seconds[0]);
  const double zero3 = benchmarks::median(seconds[1]);
  state.counters["zero0"] = 1e3 * zero0;
  state.counters["zero3"] = 1e3 * zero3;
  state.counters["ratio"] = zero3 / zero0;
}
BENCHMARK(zero_stages)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(5);

}  // namespace
