#include "tests/benchmarks/executor/training.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "planner/predict/memory.hpp"
#include "planner/program/compile.hpp"
#include "tests/benchmarks/executor/median.hpp"

namespace zeroplan::benchmarks {

void CountingBatches::next(std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
  const auto token = [&] { return static_cast<std::int32_t>(count_ * 7919 % vocabulary_); };
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = token();
    ++count_;
    targets[i] = token();
  }
}

describe::Plan fp32_plan(std::int64_t micro_batch, std::int64_t sequence) {
  describe::Plan plan;
  plan.micro_batch = micro_batch;
  plan.sequence = sequence;
  plan.precision = describe::Precision::fp32;
  plan.optimizer = describe::find_optimizer("adam");
  plan.engine = describe::find_engine("native");
  plan.bucket_bytes = plan.engine->bucket_bytes;
  return plan;
}

std::unique_ptr<executor::Rank> make_rank(const describe::Model& model, const describe::Plan& plan,
                                          std::unique_ptr<executor::Device> device,
                                          executor::Communicator& world) {
  program::StepProgram program =
      program::compile(model, plan, executor::position_of(world.rank(), plan.tensor_parallel));
  const predict::MemoryProfile memory = predict::read_memory(program);
  auto rank = std::make_unique<executor::Rank>(
      std::move(program), executor::ArenaSize{memory.peak, memory.host_peak}, std::move(device), world);
  rank->initialize(executor::normal_initialization(1, model.layers));
  return rank;
}

executor::StepSettings adam_settings() {
  executor::StepSettings settings;
  settings.learning_rate = 1e-4F;
  settings.weight_decay = 0.01F;
  return settings;
}

std::vector<std::vector<double>> take_turns(benchmark::State& state, executor::Communicator& world,
                                            std::span<const std::unique_ptr<executor::Rank>> ranks,
                                            std::int64_t vocabulary, const std::function<void()>& begin) {
  std::vector<std::vector<double>> seconds(ranks.size());
  CountingBatches batches(vocabulary);
  const auto round = [&](bool measured) {
    double total = 0;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      world.barrier();
      const double taken = seconds_of([&] {
        ranks[i]->step(adam_settings(), batches);
        world.barrier();
      });
      if (measured && world.rank() == 0) seconds[i].push_back(taken);
      total += taken;
    }
    return total;
  };
  round(false);
  begin();
  // All ranks run as many rounds, fixed before; rank 0 has the benchmark's loop.
  if (world.rank() == 0) {
    for (auto _ : state) state.SetIterationTime(round(true));
  } else {
    for (benchmark::IterationCount i = 0; i < state.max_iterations; ++i) round(true);
  }
  return seconds;
}

int processors() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

}  // namespace zeroplan::benchmarks
