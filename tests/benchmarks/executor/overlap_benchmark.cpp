#include <benchmark/benchmark.h>

#include <array>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "executor/communicator/threads/thread_communicator.hpp"
#include "executor/device/cpu/cpu_device.hpp"
#include "planner/instructions/table.hpp"
#include "planner/predict/step_costs.hpp"
#include "tests/benchmarks/executor/median.hpp"
#include "tests/benchmarks/executor/training.hpp"
#include "tests/executor/wrapped_communicator.hpp"

// GPT-2 (124M) under ZeRO-3 on two ranks of one thread each, 1 x 128 tokens, fp32: with and without overlap, over the
// memory of one process and over a link of 1 GB/s, for which each collective sleeps as long as its bytes would take. The
// four take turns. Counters: medians in milliseconds; `exposed` is what a link adds to a step without one; `predicted`
// is the step over the link with overlap as the program's order foretells it of instructions timed without overlap.

namespace {

using namespace zeroplan;

constexpr double kLinkBytesPerSecond = 1e9;

double link_seconds(program::Op op, Bytes whole, std::int64_t ranks) {
  return program::row_of(op).ring.passes * static_cast<double>(whole) * static_cast<double>(ranks - 1) /
         static_cast<double>(ranks) / kLinkBytesPerSecond;
}

struct Variant {
  bool overlap = false, paced = false;
};
constexpr std::array<Variant, 4> kVariants{{{false, false}, {true, false}, {false, true}, {true, true}}};

// Of instructions timed one after the other, with what a link would take.
double predicted_seconds(const program::StepProgram& step, const executor::Profile& profile) {
  predict::StepCosts costs;
  costs.seconds.resize(step.code.size());
  costs.launches.resize(step.code.size());
  for (std::size_t i = 0; i < step.code.size(); ++i) {
    const executor::Profile::Time& time = profile.of_instruction[i];
    const program::Instruction& instruction = step.code[i];
    if (time.calls > 0) costs.seconds[i] = time.seconds / static_cast<double>(time.calls);
    if (!program::is_collective(instruction.op)) continue;
    const program::Buffer& whole =
        step.buffers[instruction.operands[program::whole_operand(instruction.op)].buffer];
    costs.seconds[i] += link_seconds(instruction.op, instruction.dims[0] * program::bytes_of(whole.type),
                                     step.group(program::GroupKind::data_parallel).size);
  }
  return predict::read_step_seconds(step, costs);
}

void overlap(benchmark::State& state) {
  const describe::Model model = describe::resolve_model("gpt2");
  std::vector<std::vector<double>> seconds;
  double predicted = 0;
  executor::run_ranks(2, executor::ThreadOptions{}, [&](executor::Communicator& world) {
    const auto sleep = [](const auto& group, program::Op op, const executor::Tensor& whole) {
      std::this_thread::sleep_for(
          std::chrono::duration<double>(link_seconds(op, whole.bytes(), group.size())));
    };
    executor::test::WrappedCommunicator paced(world, {.before = {}, .after = sleep});
    std::array<std::unique_ptr<executor::Rank>, kVariants.size()> ranks;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      describe::Plan plan = benchmarks::fp32_plan(1, 128);
      plan.data_parallel = 2;
      plan.zero_stage = 3;
      plan.overlap = kVariants[i].overlap;
      executor::Communicator& seen = kVariants[i].paced ? paced : world;
      ranks[i] = benchmarks::make_rank(model, plan, executor::make_cpu_device({}), seen);
    }
    auto own = benchmarks::take_turns(state, world, ranks, model.vocabulary, [&] {
      for (const auto& rank : ranks) rank->interpreter().clear_profile();
    });
    if (world.rank() != 0) return;
    seconds = std::move(own);
    predicted = predicted_seconds(ranks[3]->program(), ranks[0]->interpreter().profile());
  });
  std::array<double, kVariants.size()> median{};
  for (std::size_t i = 0; i < median.size(); ++i) median[i] = benchmarks::median(seconds[i]);
  state.counters["plain"] = 1e3 * median[0];
  state.counters["plain_overlap"] = 1e3 * median[1];
  state.counters["link"] = 1e3 * median[2];
  state.counters["link_overlap"] = 1e3 * median[3];
  state.counters["exposed_ratio"] = (median[3] - median[0]) / (median[2] - median[0]);
  state.counters["predicted"] = 1e3 * predicted;
  state.counters["predicted_ratio"] = predicted / median[3];
}
BENCHMARK(overlap)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(7);

}  // namespace
