#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

#include "planner/predict/memory.hpp"
#include "planner/predict/traffic.hpp"
#include "planner/program/compile.hpp"
#include "tests/executor/training_support.hpp"
#include "tests/support/plans.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;
using namespace zeroplan::executor::test;
using describe::Plan;
using describe::Precision;
using describe::Recompute;

namespace {

constexpr std::int64_t kSteps = 3;

// Losses, norms, and every master weight at the end.
struct Outcome {
  Training training;
  std::map<TensorName, WholeTensor> masters;
};

Outcome run(const describe::Model& model, const Plan& plan, TokenAt tokens = {}) {
  WholeModel whole(model, plan);
  TrainingOptions options;
  options.steps = kSteps;
  options.settings.clip_norm = 1;
  options.tokens = std::move(tokens);
  options.visit = [&](Rank& rank, std::int64_t step) {
    const bool has_master = plan.precision != Precision::fp32;
    if (step == kSteps) whole.collect(rank, has_master ? State::master : State::parameter);
  };
  Outcome outcome;
  outcome.training = train(model, plan, options);
  outcome.masters = whole.tensors();
  return outcome;
}

bool same_masters(const Outcome& a, const Outcome& b) {
  if (a.masters.size() != b.masters.size()) return false;
  for (const auto& [name, tensor] : a.masters) {
    if (!same_bits(tensor.values, b.masters.at(name).values)) return false;
  }
  return true;
}

// The same sums in the same order without replicas: the ranks of one shard take the micro-batches of all, one after the
// other, and each sum over a shard is added to those before it.
Plan of_one_shard(const Plan& plan) {
  Plan one = plan;
  one.data_parallel = plan.shard;
  one.shard = 0;
  one.gradient_accumulation = plan.data_parallel / plan.shard;
  one.zero_stage = 2;
  return one;
}

// What the ranks of `plan` take, for those of of_one_shard(plan), each of which takes its micro-batches of a step one after
// the other.
TokenAt as_taken_by(const Plan& plan, TokenAt tokens) {
  const std::int64_t replicas = plan.data_parallel / plan.shard;
  return [=, tokens = std::move(tokens)](std::int64_t step, std::int64_t sequence, std::int64_t position) {
    const std::int64_t micro_batch = sequence / plan.micro_batch;
    const std::int64_t rank = micro_batch % replicas * plan.shard + micro_batch / replicas;
    return tokens(step, rank * plan.micro_batch + sequence % plan.micro_batch, position);
  };
}

Plan hybrid(int stage, std::int64_t data_parallel, std::int64_t shard) {
  Plan plan = fp32_plan();
  plan.zero_stage = stage;
  plan.data_parallel = data_parallel;
  plan.shard = shard;
  return plan;
}

void check_counted_and_allocated(const describe::Model& model, const Plan& plan, const Training& training) {
  const program::StepProgram program = program::compile(model, plan);
  const predict::MemoryProfile memory = predict::read_memory(program);
  for (const ArenaSize& high_water : training.high_water) {
    CHECK(high_water.device == memory.peak);
    CHECK(high_water.host == memory.host_peak);
  }
  CHECK(training.at_high_water == memory.at_peak);
  double data = 0, tensor = 0;
  for (const predict::TrafficEntry& entry : predict::read_traffic(program).entries) {
    (family_of(entry.group) == program::GroupKind::data_parallel ? data : tensor) += entry.bytes * kSteps;
  }
  CHECK(static_cast<double>(training.data_parallel_bytes) == data);
  CHECK(static_cast<double>(training.tensor_parallel_bytes) == tensor);
}

}  // namespace

TEST_CASE(
    "hybrid sharding: twelve plans on 4 and 8 ranks have the bits of one shard that takes all "
    "micro-batches") {
  struct Case {
    Plan plan;
    Precision precision = Precision::fp32;
    Recompute recompute = Recompute::none;
    bool llama = false;
  };
  const std::vector<Case> cases = {
      {hybrid(1, 4, 2)},
      {hybrid(2, 4, 2)},
      {hybrid(3, 4, 2)},
      {hybrid(1, 8, 2)},
      {hybrid(2, 8, 4)},
      {hybrid(3, 8, 2)},
      {hybrid(3, 8, 4)},
      {hybrid(2, 8, 2), Precision::bf16},
      {hybrid(3, 8, 4), Precision::bf16, Recompute::full},
      {hybrid(3, 4, 2), Precision::fp16, Recompute::none, true},
      {hybrid(1, 4, 2), Precision::bf16, Recompute::full, true},
      {hybrid(3, 8, 2), Precision::fp32, Recompute::full, true},
  };
  REQUIRE(cases.size() == 12);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(i);
    Plan plan = cases[i].plan;
    plan.precision = cases[i].precision;
    plan.recompute = cases[i].recompute;
    const describe::Model model = cases[i].llama ? tiny_llama() : tiny_gpt();
    const Outcome outcome = run(model, plan);
    check_counted_and_allocated(model, plan, outcome.training);
    const Outcome reference =
        run(model, of_one_shard(plan), as_taken_by(plan, learnable_tokens(model.vocabulary)));
    if (plan.precision == Precision::fp32) {
      CHECK(same_masters(outcome, reference));
      CHECK(same_bits(outcome.training.norms, reference.training.norms));
    }
    // Losses are summed over the ranks in another order; sums of gradients are rounded to 16 bits elsewhere.
    const double tolerance = plan.precision == Precision::fp32 ? 1e-6 : 2e-2;
    for (std::size_t step = 0; step < kSteps; ++step) {
      CHECK(outcome.training.losses[step] ==
            doctest::Approx(reference.training.losses[step]).epsilon(tolerance));
    }
  }
}

TEST_CASE(
    "hybrid sharding: micro-batches, tensor parallelism and sums with each micro-batch agree with plain "
    "ZeRO") {
  const describe::Model model = tiny_gpt();
  for (const int stage : {1, 2, 3}) {
    for (const std::int64_t tensor_parallel : {1, 2}) {
      for (const bool each_time : {false, true}) {
        CAPTURE(stage);
        CAPTURE(tensor_parallel);
        CAPTURE(each_time);
        Plan plan = hybrid(stage, 4, 2);
        plan.tensor_parallel = tensor_parallel;
        plan.gradient_accumulation = 3;
        plan.engine.edit().sums_replicas_each_micro_batch = each_time;
        const Outcome outcome = run(model, plan);
        check_counted_and_allocated(model, plan, outcome.training);
        Plan plain = plan;
        plain.shard = 0;
        const Outcome reference = run(model, plain);
        for (std::size_t step = 0; step < kSteps; ++step) {
          CHECK(outcome.training.losses[step] ==
                doctest::Approx(reference.training.losses[step]).epsilon(1e-5));
          CHECK(outcome.training.norms[step] ==
                doctest::Approx(reference.training.norms[step]).epsilon(1e-5));
        }
      }
    }
  }
}

TEST_CASE("hpZ: backward gathers from the second copy, and no bit changes") {
  const describe::Model model = tiny_llama();
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    for (const std::int64_t secondary : {2, 4}) {
      for (const std::int64_t interval : {0, 1, 2}) {
        Plan plan = hybrid(3, 4, 0);
        plan.precision = precision;
        plan.gradient_accumulation = 2;
        if (interval > 0) {
          plan.recompute = Recompute::full;
          plan.checkpoint_interval = interval;
        }
        const Outcome reference = run(model, plan);
        plan.secondary_shard = secondary;
        const Outcome outcome = run(model, plan);
        check_counted_and_allocated(model, plan, outcome.training);
        CHECK(same_masters(outcome, reference));
        CHECK(same_bits(outcome.training.norms, reference.training.norms));
        CHECK(same_bits(outcome.training.losses, reference.training.losses));
      }
    }
  }
}
