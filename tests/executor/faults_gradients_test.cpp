#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

#include "tests/executor/training_support.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;
using namespace zeroplan::executor::test;
using describe::Model;
using describe::Plan;

// Faults that gradients of other engines had: tied parameters (2), averaging and scaling (3), accumulation
// (6), norm and clipping (8).

namespace {

Plan plan_of(std::int64_t data_parallel, std::int64_t tensor_parallel, int stage) {
  Plan plan = fp32_plan();
  plan.data_parallel = data_parallel;
  plan.tensor_parallel = tensor_parallel;
  plan.zero_stage = stage;
  return plan;
}

// What one step did: its result, every gradient, and every weight before and after it.
struct Step {
  Step(const Model& model, const Plan& plan, TrainingOptions options)
      : gradients(model, plan), before(model, plan), after(model, plan) {
    options.visit = [&](Rank& rank, std::int64_t step) {
      (step == 0 ? before : after).collect(rank, State::parameter);
      if (step == 1) gradients.collect(rank, State::gradient);
    };
    training = train(model, plan, options);
  }

  float norm() const { return training.norms.front(); }

  WholeModel gradients, before, after;
  Training training;
};

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

// Of any gradient, relative to the largest of its tensor. A key's bias has no gradient but rounding.
double largest_difference(const WholeModel& a, const WholeModel& b) {
  double largest = 0;
  for (const auto& [name, tensor] : a.tensors()) {
    if (name.name == "attention.key.bias") continue;
    const WholeTensor& other = b.at(name.name, name.layer);
    largest = std::max(
        largest, largest_difference(tensor.values, other.values) / static_cast<double>(tensor.largest()));
  }
  return largest;
}

Bytes held(const Step& step, program::Category category) {
  return step.training.at_high_water[static_cast<std::size_t>(category)];
}

}  // namespace

TEST_CASE("fault 2, tied parameters: the tie's gradient is the sum of both, counted and updated once") {
  for (Model tied : {tiny_gpt(), tiny_llama()}) {
    tied.tied_embeddings = true;
    Model untied = tied;
    untied.tied_embeddings = false;
    const Elements table = tied.vocabulary * tied.hidden;
    TrainingOptions options;
    // Embedding and head begin alike in both models.
    options.initial = [wide = wide_initialization(tied.layers, 5)](const ParameterElement& element) {
      if (element.name != "head.weight" && element.name != "embedding.token") return wide(element);
      return 0.2F * std::sin(static_cast<float>(element.output * 37 + element.input * 11));
    };
    for (int stage = 0; stage <= 3; ++stage) {
      for (const std::int64_t tp : {1, 2}) {
        Plan plan = plan_of(2, tp, stage);
        CAPTURE(tied.family);
        CAPTURE(stage);
        CAPTURE(tp);
        plan.optimizer = describe::find_optimizer("sgd");
        options.settings.learning_rate = 0.5F;
        const Step both(untied, plan, options);
        const Step one(tied, plan, options);
        CHECK(one.training.losses.front() == both.training.losses.front());
        std::vector<float> sum = both.gradients.at("embedding.token").values;
        const std::vector<float>& head = both.gradients.at("head.weight").values;
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += head[i];
        const WholeTensor& gradient = one.gradients.at("embedding.token");
        CHECK(largest_difference(gradient.values, sum) <= 1e-6 * static_cast<double>(gradient.largest()));
        CHECK(one.norm() == doctest::Approx(std::sqrt(one.gradients.sum_of_squares())).epsilon(1e-6));
        CHECK(both.norm() == doctest::Approx(std::sqrt(both.gradients.sum_of_squares())).epsilon(1e-6));

        // Once, not once for each of its two uses.
        WholeTensor expected = one.before.at("embedding.token");
        for (std::size_t i = 0; i < sum.size(); ++i) expected.values[i] -= 0.5F * sum[i];
        CHECK(largest_difference(one.after.at("embedding.token").values, expected.values) <=
              1e-6 * static_cast<double>(expected.largest()));
      }
      // Adam has 8 bytes a parameter, of which a rank holds its partition of each unit.
      Plan plan = plan_of(2, 1, stage);
      plan.engine.edit().alignment_bytes = 1;
      const Elements norm = (tied.norm == describe::Norm::layer_norm ? 2 : 1) * tied.hidden;
      const std::int64_t ranks = stage == 0 ? 1 : 2;
      const Bytes saved = held(Step(untied, plan, options), program::Category::optimizer_state) -
                          held(Step(tied, plan, options), program::Category::optimizer_state);
      CHECK(saved == 8 * (div_ceil(norm + table, ranks) - div_ceil(norm, ranks)));
    }
  }
}

// Not the same bits: ranks that accumulate add in another order than one rank does. With one micro-batch a
// rank the bits are those of one rank that accumulates (training_test.cpp).
TEST_CASE("fault 3, averaging: the losses do not depend on the degrees at a fixed global batch") {
  constexpr std::int64_t kGlobalBatch = 12;
  for (const Model& model : {tiny_gpt(), tiny_llama()}) {
    TrainingOptions options;
    options.steps = 4;
    options.settings.clip_norm = 1;
    Plan plain = plan_of(1, 1, 0);
    plain.micro_batch = kGlobalBatch;
    const Training reference = train(model, plain, options);
    for (int stage = 0; stage <= 3; ++stage) {
      Plan alone = plain;
      alone.zero_stage = stage;
      CHECK(same_bits(train(model, alone, options).losses, reference.losses));
      for (const std::int64_t dp : {1, 2, 3, 4}) {
        Plan plan = plan_of(dp, dp <= 2 ? 2 : 1, stage);
        plan.micro_batch = dp == 3 ? 2 : 1;
        plan.gradient_accumulation = div_exact(kGlobalBatch, dp * plan.micro_batch);
        CAPTURE(model.family);
        CAPTURE(stage);
        CAPTURE(dp);
        const Training training = train(model, plan, options);
        for (std::size_t i = 0; i < reference.losses.size(); ++i) {
          CHECK(training.losses[i] == doctest::Approx(reference.losses[i]).epsilon(1e-5));
          CHECK(training.norms[i] == doctest::Approx(reference.norms[i]).epsilon(1e-5));
        }
      }
    }
  }
}

TEST_CASE("fault 6, accumulation: k micro-batches of b are one batch of k x b") {
  constexpr std::int64_t kMicroBatch = 2;
  const Model model = tiny_gpt();
  for (const std::int64_t dp : {1, 2}) {
    for (std::int64_t k = 1; k <= 5; ++k) {
      Plan whole = plan_of(dp, 1, 0);
      whole.micro_batch = k * kMicroBatch;
      const Step reference(model, whole, {});
      for (int stage = 0; stage <= 3; ++stage) {
        Plan plan = plan_of(dp, 1, stage);
        plan.micro_batch = kMicroBatch;
        plan.gradient_accumulation = k;
        CAPTURE(dp);
        CAPTURE(k);
        CAPTURE(stage);
        const Step step(model, plan, {});
        CHECK(step.training.losses.front() ==
              doctest::Approx(reference.training.losses.front()).epsilon(1e-6));
        CHECK(largest_difference(reference.gradients, step.gradients) <= 1e-5);
      }
    }
  }
}

TEST_CASE("fault 8, norm: the global norm is the single process's to 1e-6, and clipping follows it") {
  constexpr std::int64_t kRanks = 3;
  for (const Model& model : {tiny_gpt(), tiny_llama()}) {
    TrainingOptions options;
    options.initial = wide_initialization(model.layers, 5);
    options.settings.learning_rate = 1;
    Plan alone = plan_of(1, 1, 0);
    alone.gradient_accumulation = kRanks;
    const Step reference(model, alone, options);
    CHECK(reference.norm() == doctest::Approx(std::sqrt(reference.gradients.sum_of_squares())).epsilon(1e-6));
    options.settings.clip_norm = reference.norm() / 4;
    for (int stage = 0; stage <= 3; ++stage) {
      for (const std::int64_t tp : {1, 2, 4}) {
        Plan plan = plan_of(kRanks, tp, stage);
        plan.optimizer = describe::find_optimizer("sgd");
        CAPTURE(model.family);
        CAPTURE(stage);
        CAPTURE(tp);
        const Step step(model, plan, options);
        CHECK(step.norm() == doctest::Approx(reference.norm()).epsilon(1e-6));
        // At learning rate 1 SGD moves the weights by the clipped gradient.
        double moved = 0;
        for (const auto& [name, tensor] : step.after.tensors()) {
          const std::vector<float>& before = step.before.at(name.name, name.layer).values;
          for (std::size_t i = 0; i < before.size(); ++i) {
            const double by = static_cast<double>(before[i]) - static_cast<double>(tensor.values[i]);
            moved += by * by;
          }
        }
        CHECK(std::sqrt(moved) == doctest::Approx(options.settings.clip_norm).epsilon(1e-5));
      }
    }
  }
}
