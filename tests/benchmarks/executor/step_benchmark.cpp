#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>
#include <string>
#include <vector>

#include "executor/communicator/threads/thread_communicator.hpp"
#include "executor/device/cpu/cpu_device.hpp"
#include "tests/benchmarks/executor/median.hpp"
#include "tests/benchmarks/executor/timed_device.hpp"
#include "tests/benchmarks/executor/training.hpp"

// One training step of GPT-2 124M: forward, backward and Adam in fp32 on 4 sequences of 64 tokens, one rank,
// a thread for every processor. scripts/benchmark_step lays it beside PyTorch's. Counters: seconds of a step
// (median, fastest, slowest; "processor": of all threads together, mean) and by instruction (mean), the products' operations and their rate over the
// median step.

namespace {

using namespace zeroplan;

// Of all threads of this process so far.
double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void gpt2_step(benchmark::State& state) {
  const describe::Model model = describe::resolve_model("gpt2");
  const describe::Plan plan = benchmarks::fp32_plan(4, 64);
  executor::run_ranks(1, executor::ThreadOptions{}, [&](executor::Communicator& world) {
    benchmarks::TimedDevice::SecondsByOp seconds_by_op{};
    const auto rank = benchmarks::make_rank(
        model, plan,
        std::make_unique<benchmarks::TimedDevice>(
            executor::make_cpu_device({.threads = benchmarks::processors()}), seconds_by_op),
        world);
    benchmarks::CountingBatches batches(model.vocabulary);
    const auto step = [&] {
      return benchmarks::seconds_of([&] { rank->step(benchmarks::adam_settings(), batches); });
    };
    for (int i = 0; i < 2; ++i) step();  // touches the memory
    seconds_by_op = {};
    const Flops before = rank->device().product_flops();
    std::vector<double> seconds;
    const double processor = processor_seconds();
    for (auto _ : state) {
      seconds.push_back(step());
      state.SetIterationTime(seconds.back());
    }
    const auto steps = static_cast<double>(seconds.size());
    const Flops flops = (rank->device().product_flops() - before) / steps;
    state.counters["median"] = benchmarks::median(seconds);
    state.counters["fastest"] = *std::min_element(seconds.begin(), seconds.end());
    state.counters["slowest"] = *std::max_element(seconds.begin(), seconds.end());
    state.counters["processor"] = (processor_seconds() - processor) / steps;
    state.counters["GFLOP"] = flops / 1e9;
    state.counters["GFLOP/s"] = flops / 1e9 / benchmarks::median(seconds);
    for (std::size_t op = 0; op < seconds_by_op.size(); ++op) {
      if (seconds_by_op[op] == 0) continue;
      state.counters[std::string(program::name_of(static_cast<program::Op>(op)))] = seconds_by_op[op] / steps;
    }
  });
}
BENCHMARK(gpt2_step)->Unit(benchmark::kMillisecond)->UseManualTime()->Iterations(5);

}  // namespace
