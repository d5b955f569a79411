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
using zeroplan::test::small_gpt;
using zeroplan::test::small_llama;

namespace {

TrainingOptions steps_of(std::int64_t steps, float clip_norm = 0) {
  TrainingOptions options;
  options.steps = steps;
  options.settings.clip_norm = clip_norm;
  return options;
}

}  // namespace

TEST_CASE("the loss falls") {
  for (const describe::Model& model : {small_gpt(), small_llama()}) {
    const Training training = train(model, fp32_plan(), steps_of(100, 1));
    CHECK(training.losses.front() == doctest::Approx(std::log(model.vocabulary)).epsilon(0.02));
    CHECK(training.losses.back() < training.losses.front() - 0.4F);
  }
}

TEST_CASE("the whole gradient is the loss's: a small step along it lowers the loss by its squared norm") {
  for (const describe::Model& model : {small_gpt(), small_llama()}) {
    for (const auto attention : {describe::AttentionKernel::flash, describe::AttentionKernel::materialized}) {
      describe::Plan plan = fp32_plan();
      plan.optimizer = describe::find_optimizer("sgd");
      plan.attention = attention;
      const auto two_steps = [&](float learning_rate) {
        TrainingOptions options = steps_of(2);
        options.settings.learning_rate = learning_rate;
        options.tokens = same_every_step(learnable_tokens(model.vocabulary));
        return train(model, plan, options);
      };
      const float squared_norm = std::pow(two_steps(0).norms.front(), 2.0F);
      const float decrease = 4e-3F;
      const std::vector<float> losses = two_steps(decrease / squared_norm).losses;
      CAPTURE(model.family);
      CHECK(losses[0] - losses[1] == doctest::Approx(decrease).epsilon(0.02));
    }
  }
}

TEST_CASE("recomputation, partitioned and offloaded activations, and offload change no bit") {
  const describe::Model model = small_llama();
  describe::Plan plan = fp32_plan();
  plan.data_parallel = 2;
  plan.tensor_parallel = 2;
  plan.zero_stage = 3;
  const Training reference = train(model, plan, steps_of(4));
  const auto same = [&](const describe::Plan& changed) {
    return same_bits(train(model, changed, steps_of(4)).losses, reference.losses);
  };
  describe::Plan changed = plan;
  changed.recompute = describe::Recompute::full;
  CHECK(same(changed));
  changed.checkpoint_interval = 2;
  CHECK(same(changed));
  changed.partition_activations = true;
  CHECK(same(changed));
  changed.offload_activations = true;
  CHECK(same(changed));
  changed = plan;
  changed.offload = describe::Offload::all;
  CHECK(same(changed));
  changed.offload = describe::Offload::optimizer;
  CHECK(same(changed));
}

TEST_CASE("planned bytes are allocated bytes and predicted traffic is the ledger's, with difference 0") {
  constexpr int kEvery = 5;  // of the plans, so that the sanitizers get through
  int plans = 0;
  int combinations = 0;
  for (const describe::Model& model : {small_gpt(), small_llama()}) {
    zeroplan::test::for_each_plan(model, [&](const std::string& name, const describe::Plan& plan) {
      if (plans++ % kEvery != 0) return;
      CAPTURE(name);
      ++combinations;
      const program::StepProgram program = program::compile(model, plan);
      const predict::MemoryProfile memory = predict::read_memory(program);
      const predict::Traffic traffic = predict::read_traffic(program);
      const Training training = train(model, plan, steps_of(1));
      for (const ArenaSize& high_water : training.high_water) {
        CHECK(high_water.device == memory.peak);
        CHECK(high_water.host == memory.host_peak);
      }
      CHECK(training.at_high_water == memory.at_peak);
      double data = 0;
      double tensor = 0;
      for (const predict::TrafficEntry& entry : traffic.entries) {
        (family_of(entry.group) == program::GroupKind::data_parallel ? data : tensor) += entry.bytes;
      }
      CHECK(static_cast<double>(training.data_parallel_bytes) == data);
      CHECK(static_cast<double>(training.tensor_parallel_bytes) == tensor);
    });
  }
  MESSAGE(combinations << " of " << plans << " plans run");
  CHECK(combinations >= 200);
}
