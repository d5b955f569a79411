#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "executor/rank.hpp"
#include "planner/describe/model/model.hpp"
#include "planner/describe/plan/plan.hpp"

namespace zeroplan::benchmarks {

// Tokens that differ from step to step; their values do not matter to the time of a step.
class CountingBatches final : public executor::BatchSource {
 public:
  explicit CountingBatches(std::int64_t vocabulary) : vocabulary_(vocabulary) {}
  void next(std::span<std::int32_t> tokens, std::span<std::int32_t> targets) override;

 private:
  std::int64_t vocabulary_;
  std::int64_t count_ = 0;
};

// fp32, Adam, our own engine, one micro-batch a step.
describe::Plan fp32_plan(std::int64_t micro_batch, std::int64_t sequence);

// A rank of the plan with initial parameters, for the thread that calls.
std::unique_ptr<executor::Rank> make_rank(const describe::Model& model, const describe::Plan& plan,
                                          std::unique_ptr<executor::Device> device,
                                          executor::Communicator& world);

executor::StepSettings adam_settings();

// Several ranks of one thread take a step each in turn, once for each iteration of `state` after a round that touches the
// memory and is followed by `begin`. On rank 0 of `world`: the seconds of each, by rank and iteration.
std::vector<std::vector<double>> take_turns(
    benchmark::State& state, executor::Communicator& world,
    std::span<const std::unique_ptr<executor::Rank>> ranks, std::int64_t vocabulary,
    const std::function<void()>& begin = [] {});

int processors();

}  // namespace zeroplan::benchmarks
