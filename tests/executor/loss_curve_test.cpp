#include <doctest/doctest.h>

#include <cmath>

#include "tests/executor/training_support.hpp"
#include "tests/support/plans.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;
using namespace zeroplan::executor::test;
using describe::Model;
using describe::Plan;
using describe::Precision;

// Loss curves of 50 steps with clipping, against one rank that accumulates the same micro-batches in the
// order of ranks.

namespace {

constexpr std::int64_t kSteps = 50;

std::vector<Model> models() {
  std::vector<Model> result;
  for (const Model& model : {tiny_gpt(), tiny_llama()}) {
    for (const bool tied : {false, true}) {
      result.push_back(model);
      result.back().tied_embeddings = tied;
    }
  }
  return result;
}

Training curve(const Model& model, const Plan& plan) {
  TrainingOptions options;
  options.steps = kSteps;
  options.settings.learning_rate = 3e-3F;
  options.settings.weight_decay = 0.1F;
  options.settings.clip_norm = 1;
  options.initial = wide_initialization(model.layers, 4);
  if (plan.precision == Precision::fp16) {
    options.loss_scale = 4096;
    options.settings.dynamic_loss_scale = true;
    options.settings.scale_window = 20;
  }
  return train(model, plan, options);
}

Plan plan_of(Precision precision) {
  Plan plan = fp32_plan();
  plan.precision = precision;
  plan.sequence = 7;
  return plan;
}

Training alone(const Model& model, Plan plan, std::int64_t micro_batches) {
  plan.data_parallel = 1;
  plan.tensor_parallel = 1;
  plan.gradient_accumulation = micro_batches;
  return curve(model, plan);
}

double largest_difference(const Training& training, const Training& reference) {
  double largest = 0;
  for (std::size_t i = 0; i < reference.losses.size(); ++i) {
    const double expected = reference.losses[i];
    largest = std::max(largest, std::abs(static_cast<double>(training.losses[i]) - expected) / expected);
  }
  return largest;
}

std::int64_t clipped_steps(const Training& training) {
  std::int64_t count = 0;
  for (const float norm : training.norms) count += norm > 1;
  return count;
}

}  // namespace

TEST_CASE("loss curve: fp32 has the bits of one rank at every stage and data-parallel degree") {
  for (const Model& model : models()) {
    for (const std::int64_t dp : {2, 3, 4}) {
      Plan plan = plan_of(Precision::fp32);
      const Training reference = alone(model, plan, dp);
      CHECK(reference.losses.back() < 0.8F * reference.losses.front());
      CHECK(clipped_steps(reference) > 5);
      plan.data_parallel = dp;
      for (int stage = 0; stage <= 3; ++stage) {
        plan.zero_stage = stage;
        CAPTURE(model.family);
        CAPTURE(model.tied_embeddings);
        CAPTURE(dp);
        CAPTURE(stage);
        const Training training = curve(model, plan);
        CHECK(same_bits(training.losses, reference.losses));
        CHECK(same_bits(training.norms, reference.norms));
      }
    }
  }
}

TEST_CASE("loss curve: fp32 under tensor parallelism is one rank's to 1e-5") {
  double largest = 0;
  for (const Model& model : models()) {
    Plan plan = plan_of(Precision::fp32);
    const Training reference = alone(model, plan, 2);
    plan.data_parallel = 2;
    for (const std::int64_t tp : {2, 4}) {
      plan.tensor_parallel = tp;
      for (const int stage : {0, 3}) {
        plan.zero_stage = stage;
        CAPTURE(model.family);
        CAPTURE(model.tied_embeddings);
        CAPTURE(tp);
        CAPTURE(stage);
        const double difference = largest_difference(curve(model, plan), reference);
        CHECK(difference <= 1e-5);
        largest = std::max(largest, difference);
      }
    }
  }
  MESSAGE("largest relative difference of a loss " << largest);
}

// Every activation and gradient is rounded by up to 2^-9 (bf16) or 2^-11 (fp16) of itself. Where ranks or the
// type differ, roundings do, and they partly cancel: a loss may differ by four of them, and was seen to
// differ by two. Stages only divide the work: their roundings are the same.
TEST_CASE("loss curve: in 16 bits stages have the same bits, and a loss is fp32's to four roundings") {
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    const double rounding = precision == Precision::bf16 ? 0x1.0p-9 : 0x1.0p-11;
    double to_fp32 = 0;
    double to_alone = 0;
    for (const Model& model : models()) {
      const Training exact = alone(model, plan_of(Precision::fp32), 2);
      const Training reference = alone(model, plan_of(precision), 2);
      Plan plan = plan_of(precision);
      plan.data_parallel = 2;
      for (const std::int64_t tp : {1, 2}) {
        plan.tensor_parallel = tp;
        plan.zero_stage = 0;
        const Training undivided = curve(model, plan);
        CAPTURE(name_of(precision));
        CAPTURE(model.family);
        CAPTURE(model.tied_embeddings);
        CAPTURE(tp);
        to_fp32 = std::max(to_fp32, largest_difference(undivided, exact));
        to_alone = std::max(to_alone, largest_difference(undivided, reference));
        if (precision == Precision::fp16) CHECK(undivided.results.back().loss_scale > 4096);
        for (int stage = 1; stage <= 3; ++stage) {
          plan.zero_stage = stage;
          CAPTURE(stage);
          CHECK(same_bits(curve(model, plan).losses, undivided.losses));
        }
      }
    }
    MESSAGE(name_of(precision) << ": largest relative difference of a loss " << to_fp32 << " from fp32, "
                               << to_alone << " from one rank");
    CHECK(to_fp32 <= 4 * rounding);
    CHECK(to_alone <= 4 * rounding);
  }
}
