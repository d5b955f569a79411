#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

#include "executor/rate_schedule.hpp"
#include "tests/executor/pytorch_support.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;
using namespace zeroplan::executor::test;

// Losses, gradients and updates against PyTorch in float64: tests/reference/pytorch/make_vectors.py, whose
// models and numbers these are. "Relative" is to the largest value of a tensor.

namespace {

constexpr double kTolerance = kPytorchTolerance;

struct Reference : PytorchReference {
  PytorchVectors training, schedule;
};

Reference read_reference(const std::string& name, std::string_view shape) {
  Reference reference;
  reference.model = describe::read_model_spelling(shape);
  reference.gradients = read_pytorch_vectors(name + ".gradients.txt");
  reference.training = read_pytorch_vectors(name + ".training.txt");
  reference.schedule = read_pytorch_vectors(name + ".schedule.txt");
  return reference;
}

const Reference& gpt() {
  static const Reference reference =
      read_reference("gpt", "layers=3,hidden=20,heads=4,head_dim=5,ffn=54,vocab=37");
  return reference;
}

const Reference& llama() {
  static const Reference reference =
      read_reference("llama", "layers=2,hidden=32,heads=4,kv_heads=2,head_dim=8,ffn=48,vocab=37,gated=true");
  return reference;
}

}  // namespace

TEST_CASE("pytorch: loss and every gradient to 1e-5, by every attention kernel and recomputation") {
  for (const Reference* reference : {&gpt(), &llama()}) {
    double largest = 0;
    for (const auto attention : {describe::AttentionKernel::flash, describe::AttentionKernel::materialized,
                                 describe::AttentionKernel::materialized_fp32}) {
      for (const auto recompute :
           {describe::Recompute::none, describe::Recompute::selective, describe::Recompute::full}) {
        describe::Plan plan = pytorch_plan({1, 1}, 1);
        plan.attention = attention;
        plan.recompute = recompute;
        CAPTURE(name_of(attention));
        CAPTURE(name_of(recompute));
        largest = std::max(largest, check_pytorch_gradients(*reference, plan));
      }
    }
    MESSAGE(reference->model.family << ": largest relative difference of a gradient " << largest);
  }
}

TEST_CASE("pytorch: loss and every gradient to 1e-5, at every stage and degree, with accumulation") {
  for (const Reference* reference : {&gpt(), &llama()}) {
    double largest = 0;
    for (int stage = 0; stage <= 3; ++stage) {
      for (const std::int64_t tp : {1, 2}) {
        for (const Division division : {Division{2, 1}, Division{2, 3}, Division{3, 1}, Division{1, 6}}) {
          describe::Plan plan = pytorch_plan(division, tp);
          plan.zero_stage = stage;
          CAPTURE(stage);
          CAPTURE(tp);
          CAPTURE(division.ranks);
          CAPTURE(division.accumulation);
          largest = std::max(largest, check_pytorch_gradients(*reference, plan));
        }
      }
    }
    MESSAGE(reference->model.family << ": largest relative difference of a gradient " << largest);
  }
}

TEST_CASE("pytorch: losses, norms and weights of steps with clipping and AdamW to 1e-5") {
  for (const Reference* reference : {&gpt(), &llama()}) {
    const auto& vectors = reference->training;
    const std::vector<double>& losses = vectors.at({"losses", 0});
    const std::vector<double>& norms = vectors.at({"gradient_norms", 0});
    for (int stage = 0; stage <= 3; ++stage) {
      for (const std::int64_t tp : {1, 2}) {
        describe::Plan plan = pytorch_plan({3, 1}, tp);
        plan.zero_stage = stage;
        CAPTURE(stage);
        CAPTURE(tp);
        WholeModel weights(reference->model, plan);
        TrainingOptions options = pytorch_training_options(vectors);
        options.visit = [&](Rank& rank, std::int64_t step) {
          if (step == options.steps - 1) weights.collect(rank, State::parameter);
        };
        const Training training = train(reference->model, plan, options);
        for (std::size_t i = 0; i < losses.size(); ++i) {
          CHECK(training.losses[i] == doctest::Approx(losses[i]).epsilon(kTolerance));
          CHECK(training.norms[i] == doctest::Approx(norms[i]).epsilon(kTolerance));
        }
        largest_pytorch_difference(weights.tensors(), vectors);
      }
    }
  }
}

TEST_CASE("pytorch: schedules of the rate, betas, epsilon and decay of matrices only to 1e-5") {
  for (const Reference* reference : {&gpt(), &llama()}) {
    const auto& vectors = reference->schedule;
    const auto number = [&](const std::string& name, std::size_t i = 0) {
      return vectors.at({name, 0}).at(i);
    };
    for (const RateSchedule::Decay decay : {RateSchedule::Decay::cosine, RateSchedule::Decay::linear}) {
      const std::string name(name_of(decay));
      const std::vector<double>& losses = vectors.at({name + ".losses", 0});
      const std::vector<double>& norms = vectors.at({name + ".gradient_norms", 0});
      const std::vector<double>& rates = vectors.at({name + ".rates", 0});
      RateSchedule schedule;
      schedule.decay = decay;
      schedule.warm_up_steps = static_cast<std::int64_t>(number("warm_up"));
      schedule.steps = static_cast<std::int64_t>(losses.size());
      schedule.minimum = number("minimum_rate");
      for (const std::int64_t ranks : {1, 3}) {  // 3: partitions begin and end inside tensors
        for (const std::int64_t tp : {1, 2}) {
          describe::Plan plan = pytorch_plan({ranks, 1}, tp);
          plan.zero_stage = ranks > 1 ? 2 : 0;
          CAPTURE(name);
          CAPTURE(ranks);
          CAPTURE(tp);
          WholeModel weights(reference->model, plan);
          TrainingOptions options = pytorch_options();
          options.steps = schedule.steps;
          options.settings.beta1 = static_cast<float>(number("betas", 0));
          options.settings.beta2 = static_cast<float>(number("betas", 1));
          options.settings.epsilon = static_cast<float>(number("epsilon"));
          options.settings.weight_decay = static_cast<float>(number("weight_decay"));
          options.settings.decayed = Decayed::matrices;
          options.settings.clip_norm = static_cast<float>(number("clip_norm"));
          options.rate = [&](std::int64_t update) {
            return rate_at(schedule, number("learning_rate"), update);
          };
          options.visit = [&](Rank& rank, std::int64_t step) {
            if (step == options.steps - 1) weights.collect(rank, State::parameter);
          };
          const Training training = train(reference->model, plan, options);
          for (std::size_t i = 0; i < losses.size(); ++i) {
            CHECK(options.rate(static_cast<std::int64_t>(i) + 1) == doctest::Approx(rates[i]).epsilon(1e-7));
            CHECK(training.losses[i] == doctest::Approx(losses[i]).epsilon(kTolerance));
            CHECK(training.norms[i] == doctest::Approx(norms[i]).epsilon(kTolerance));
          }
          if (decay == RateSchedule::Decay::cosine) largest_pytorch_difference(weights.tensors(), vectors);
        }
      }
    }
  }
}
