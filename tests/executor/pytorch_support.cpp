#include "tests/executor/pytorch_support.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "tests/support/plans.hpp"

namespace zeroplan::executor::test {

namespace {

constexpr std::int64_t kSequence = 10, kBatch = 6;

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
  return static_cast<std::int32_t>(draw("tokens", {step, sequence, position}) % kPytorchVocabulary);
}

}  // namespace

PytorchVectors read_pytorch_vectors(const std::string& file) {
  std::ifstream stream(std::string(ZEROPLAN_TEST_DATA) + "/pytorch/" + file);
  REQUIRE_MESSAGE(stream.good(), file);
  PytorchVectors tensors;
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

describe::Plan pytorch_plan(Division division, std::int64_t tensor_parallel) {
  describe::Plan plan = fp32_plan();
  plan.sequence = kSequence;
  plan.data_parallel = division.ranks;
  plan.gradient_accumulation = division.accumulation;
  plan.micro_batch = div_exact(kBatch, division.ranks * division.accumulation);
  plan.tensor_parallel = tensor_parallel;
  return plan;
}

TrainingOptions pytorch_options() {
  TrainingOptions options;
  options.settings.learning_rate = 0;
  options.settings.dropout_seed = (std::uint64_t{1} << 40U) + 17;
  options.initial = drawn_value;
  options.tokens = drawn_token;
  return options;
}

TrainingOptions pytorch_training_options(const PytorchVectors& training) {
  const auto number = [&](const std::string& name, std::size_t i = 0) {
    return static_cast<float>(training.at({name, 0}).at(i));
  };
  TrainingOptions options = pytorch_options();
  options.steps = static_cast<std::int64_t>(training.at({"losses", 0}).size());
  options.settings.learning_rate = number("learning_rate");
  options.settings.beta1 = number("betas", 0);
  options.settings.beta2 = number("betas", 1);
  options.settings.epsilon = number("epsilon");
  options.settings.weight_decay = number("weight_decay");
  options.settings.decayed = Decayed::all;
  options.settings.clip_norm = number("clip_norm");
  return options;
}

// The key's bias has no gradient (a softmax does not see what all its scores share), so what is left of it is
// measured by its neighbour's.
static double scale_of(const PytorchVectors& reference, TensorName name) {
  if (name.name == "attention.key.bias") name.name = "attention.query.bias";
  double largest = 0;
  for (const double value : reference.at(name)) largest = std::max(largest, std::abs(value));
  return largest;
}

// The largest relative difference of any tensor that the reference has.
double largest_pytorch_difference(const std::map<TensorName, WholeTensor>& ours,
                                  const PytorchVectors& reference, double tolerance) {
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
    CHECK_MESSAGE(difference <= tolerance, fmt::format("{} of layer {}", name.name, name.layer));
    largest = std::max(largest, difference);
  }
  REQUIRE(compared > 0);
  return largest;
}

// One step, every gradient. Returns the largest difference.
double check_pytorch_gradients(const PytorchReference& reference, const describe::Plan& plan) {
  WholeModel gradients(reference.model, plan);
  TrainingOptions options = pytorch_options();
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
  return largest_pytorch_difference(gradients.tensors(), reference.gradients, reference.tolerance);
}

}  // namespace zeroplan::executor::test
