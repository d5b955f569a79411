#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "executor/rate_schedule.hpp"
#include "tests/executor/training_support.hpp"
#include "tests/support/plans.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;
using namespace zeroplan::executor::test;

// Losses, gradients and updates against PyTorch in float64: tests/reference/pytorch/make_vectors.py, whose
// models and numbers these are. "Relative" is to the largest value of a tensor.

namespace {

constexpr std::int64_t kVocabulary = 37, kSequence = 10, kBatch = 6;
constexpr double kTolerance = 1e-5;

std::uint32_t draw(std::string_view name, std::initializer_list<std::int64_t> parts) {
  std::uint32_t state = 2166136261;
  for (const char c : name) state = (state ^ static_cast<unsigned char>(c)) * 16777619;
  for (const std::int64_t part : parts) {
    state = (state ^ static_cast<std::uint32_t>(part)) * 0x9E3779B1;
    state ^= state >> 15;
  }
  return state;
}

float drawn_value(const ParameterElement& element) {
  const bool norm = element.name.find("norm") != std::string_view::npos && element.name.ends_with(".weight");
  const std::uint32_t drawn = draw(element.name, {element.layer, element.output, element.input}) >> 16;
  return (norm ? 1.0F : 0.0F) + (static_cast<float>(drawn) - 32768.0F) / 131072.0F;
}

std::int32_t drawn_token(std::int64_t step, std::int64_t sequence, std::int64_t position) {
  return static_cast<std::int32_t>(draw("tokens", {step, sequence, position}) % kVocabulary);
}

struct Reference {
  describe::Model model;
  std::map<TensorName, std::vector<double>> gradients, training, schedule;
};

std::map<TensorName, std::vector<double>> read_vectors(const std::string& file) {
  std::ifstream stream(std::string(ZEROPLAN_TEST_DATA) + "/pytorch/" + file);
  REQUIRE_MESSAGE(stream.good(), file);
  std::map<TensorName, std::vector<double>> tensors;
  std::string line;
  while (std::getline(stream, line)) {
    if (line.starts_with('#')) continue;
    std::istringstream heading(line);
    TensorName name;
    std::size_t outputs = 0;
    std::size_t inputs = 0;
    heading >> name.name >> name.layer >> outputs >> inputs;
    std::vector<double>& values = tensors[name];
    values.resize(outputs * inputs);
    for (double& value : values) stream >> value;
    REQUIRE_MESSAGE((!heading.fail() && !stream.fail()), file);
    std::getline(stream, line);
  }
  return tensors;
}

Reference read_reference(const std::string& name, std::string_view shape) {
  return {describe::read_model_spelling(shape), read_vectors(name + ".gradients.txt"),
          read_vectors(name + ".training.txt"), read_vectors(name + ".schedule.txt")};
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

// Of the global batch.
struct Division {
  std::int64_t ranks = 1, accumulation = 1;
};

describe::Plan plan_of(Division division, std::int64_t tensor_parallel) {
  describe::Plan plan = fp32_plan();
  plan.sequence = kSequence;
  plan.data_parallel = division.ranks;
  plan.gradient_accumulation = division.accumulation;
  plan.micro_batch = div_exact(kBatch, division.ranks * division.accumulation);
  plan.tensor_parallel = tensor_parallel;
  return plan;
}

TrainingOptions drawn_options() {
  TrainingOptions options;
  options.settings.learning_rate = 0;
  options.initial = drawn_value;
  options.tokens = drawn_token;
  return options;
}

// The key's bias has no gradient (a softmax does not see what all its scores share), so what is left of it is
// measured by its neighbour's.
double scale_of(const std::map<TensorName, std::vector<double>>& reference, TensorName name) {
  if (name.name == "attention.key.bias") name.name = "attention.query.bias";
  double largest = 0;
  for (const double value : reference.at(name)) largest = std::max(largest, std::abs(value));
  return largest;
}

// The largest relative difference of any tensor that the reference has.
double largest_difference(const std::map<TensorName, WholeTensor>& ours,
                          const std::map<TensorName, std::vector<double>>& reference) {
  double largest = 0;
  std::size_t compared = 0;
  for (const auto& entry : ours) {
    const TensorName& name = entry.first;
    const WholeTensor& tensor = entry.second;
    const auto found = reference.find(name);
    if (found == reference.end()) continue;
    ++compared;
    REQUIRE(found->second.size() == tensor.values.size());
    double difference = 0;
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      difference = std::max(difference, std::abs(static_cast<double>(tensor.values[i]) - found->second[i]));
    }
    difference /= scale_of(reference, name);
    CHECK_MESSAGE(difference <= kTolerance, fmt::format("{} of layer {}", name.name, name.layer));
    largest = std::max(largest, difference);
  }
  REQUIRE(compared > 0);
  return largest;
}

// One step, every gradient. Returns the largest difference.
double check_gradients(const Reference& reference, const describe::Plan& plan) {
  WholeModel gradients(reference.model, plan);
  TrainingOptions options = drawn_options();
  options.visit = [&](Rank& rank, std::int64_t step) {
    if (step == 1) gradients.collect(rank, State::gradient);
  };
  const Training training = train(reference.model, plan, options);
  const double loss = reference.gradients.at({"loss", 0}).front();
  const double norm = reference.gradients.at({"gradient_norm", 0}).front();
  CHECK(training.losses.front() == doctest::Approx(loss).epsilon(1e-6));
  CHECK(training.norms.front() == doctest::Approx(norm).epsilon(1e-6));
  for (const float value : gradients.padding()) CHECK(value == 0);
  CHECK(gradients.tensors().size() + 2 == reference.gradients.size());
  return largest_difference(gradients.tensors(), reference.gradients);
}

}  // namespace

TEST_CASE("pytorch: loss and every gradient to 1e-5, by every attention kernel and recomputation") {
  for (const Reference* reference : {&gpt(), &llama()}) {
    double largest = 0;
    for (const auto attention : {describe::AttentionKernel::flash, describe::AttentionKernel::materialized,
                                 describe::AttentionKernel::materialized_fp32}) {
      for (const auto recompute :
           {describe::Recompute::none, describe::Recompute::selective, describe::Recompute::full}) {
        describe::Plan plan = plan_of({1, 1}, 1);
        plan.attention = attention;
        plan.recompute = recompute;
        CAPTURE(name_of(attention));
        CAPTURE(name_of(recompute));
        largest = std::max(largest, check_gradients(*reference, plan));
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
          describe::Plan plan = plan_of(division, tp);
          plan.zero_stage = stage;
          CAPTURE(stage);
          CAPTURE(tp);
          CAPTURE(division.ranks);
          CAPTURE(division.accumulation);
          largest = std::max(largest, check_gradients(*reference, plan));
        }
      }
    }
    MESSAGE(reference->model.family << ": largest relative difference of a gradient " << largest);
  }
}

TEST_CASE("pytorch: losses, norms and weights of steps with clipping and AdamW to 1e-5") {
  for (const Reference* reference : {&gpt(), &llama()}) {
    const auto& vectors = reference->training;
    const auto number = [&](const std::string& name, std::size_t i = 0) {
      return static_cast<float>(vectors.at({name, 0}).at(i));
    };
    const std::vector<double>& losses = vectors.at({"losses", 0});
    const std::vector<double>& norms = vectors.at({"gradient_norms", 0});
    for (int stage = 0; stage <= 3; ++stage) {
      for (const std::int64_t tp : {1, 2}) {
        describe::Plan plan = plan_of({3, 1}, tp);
        plan.zero_stage = stage;
        CAPTURE(stage);
        CAPTURE(tp);
        WholeModel weights(reference->model, plan);
        TrainingOptions options = drawn_options();
        options.steps = static_cast<std::int64_t>(losses.size());
        options.settings.learning_rate = number("learning_rate");
        options.settings.beta1 = number("betas", 0);
        options.settings.beta2 = number("betas", 1);
        options.settings.epsilon = number("epsilon");
        options.settings.weight_decay = number("weight_decay");
        options.settings.decayed = Decayed::all;
        options.settings.clip_norm = number("clip_norm");
        options.visit = [&](Rank& rank, std::int64_t step) {
          if (step == options.steps - 1) weights.collect(rank, State::parameter);
        };
        const Training training = train(reference->model, plan, options);
        for (std::size_t i = 0; i < losses.size(); ++i) {
          CHECK(training.losses[i] == doctest::Approx(losses[i]).epsilon(kTolerance));
          CHECK(training.norms[i] == doctest::Approx(norms[i]).epsilon(kTolerance));
        }
        largest_difference(weights.tensors(), vectors);
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
          describe::Plan plan = plan_of({ranks, 1}, tp);
          plan.zero_stage = ranks > 1 ? 2 : 0;
          CAPTURE(name);
          CAPTURE(ranks);
          CAPTURE(tp);
          WholeModel weights(reference->model, plan);
          TrainingOptions options = drawn_options();
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
          if (decay == RateSchedule::Decay::cosine) largest_difference(weights.tensors(), vectors);
        }
      }
    }
  }
}
