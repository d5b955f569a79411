#include "executor/initialize.hpp"

#include <cmath>
#include <numbers>

#include "executor/half.hpp"

namespace zeroplan::executor {

namespace {

using program::BufferId;
using program::kNoBuffer;

// SplitMix64's finalizer: a bijection that mixes well, so counters make independent draws.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0;
  for (const char c : text) hash = mix(hash ^ static_cast<unsigned char>(c));
  return hash;
}

// Box and Muller's normal deviate from two uniform ones.
double normal(std::uint64_t counter) {
  constexpr double kUnit = 0x1.0p-53;
  const double u = (static_cast<double>(mix(counter) >> 11) + 0.5) * kUnit;
  const double v = static_cast<double>(mix(counter ^ 0x5851F42D4C957F2DULL) >> 11) * kUnit;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

bool ends_with(std::string_view text, std::string_view end) { return text.ends_with(end); }

void store(const Tensor& tensor, Elements index, float value) {
  const auto i = static_cast<std::size_t>(index);
  switch (tensor.type) {
    case program::DataType::fp32:
      tensor.as<float>()[i] = value;
      break;
    case program::DataType::fp16:
      tensor.as<std::uint16_t>()[i] = fp16_from_float(value);
      break;
    default:
      tensor.as<std::uint16_t>()[i] = bf16_from_float(value);
  }
}

}  // namespace

ParameterValue normal_initialization(std::uint64_t seed, std::int64_t layers) {
  const double residual = 1 / std::sqrt(2.0 * static_cast<double>(layers));
  return [seed, residual](const ParameterElement& element) {
    if (ends_with(element.name, ".bias")) return 0.0F;
    if (element.name.find("norm") != std::string_view::npos) return 1.0F;
    const bool to_residual =
        ends_with(element.name, "attention.output.weight") || ends_with(element.name, "down.weight");
    std::uint64_t counter = mix(seed ^ hash_of(element.name));
    for (const std::int64_t part : {element.layer, element.copy, element.output, element.input}) {
      counter = mix(counter ^ static_cast<std::uint64_t>(part));
    }
    return static_cast<float>(normal(counter) * 0.02 * (to_residual ? residual : 1));
  };
}

void for_each_element(const program::TensorPlacement& tensor, std::int64_t layer,
                      const std::function<void(const ParameterElement&, Elements)>& visit) {
  Elements flat = tensor.offset;
  ParameterElement element{.name = tensor.name, .layer = layer};
  for (element.copy = 0; element.copy < tensor.copies; ++element.copy) {
    for (Elements row = 0; row < tensor.outputs; ++row) {
      element.output = tensor.first_output + row;
      for (Elements column = 0; column < tensor.inputs; ++column) {
        element.input = tensor.first_input + column;
        visit(element, flat++);
      }
    }
  }
}

void initialize_parameters(const program::StepProgram& program, Interpreter& interpreter,
                           const ParameterValue& value) {
  for (const program::TensorPlacement& placement : program.tensors) {
    const program::UnitPlacement& unit = program.units[placement.unit];
    const Elements own = program.data_parallel.rank * unit.partition;
    // Where a buffer holds a partition, flat indices start at the rank's own.
    const Elements parameter_begin = unit.parameter_is_partition ? own : 0;
    const Elements master_begin = unit.states_are_partition ? own : 0;
    for (std::int64_t layer = unit.first_layer; layer < unit.first_layer + unit.layers; ++layer) {
      const Tensor parameter = interpreter.tensor(unit.parameter, layer);
      const Tensor master = unit.master != kNoBuffer ? interpreter.tensor(unit.master, layer) : Tensor{};
      for_each_element(placement, layer, [&](const ParameterElement& element, Elements flat) {
        const Elements in_parameter = flat - parameter_begin;
        const Elements in_master = flat - master_begin;
        const bool here = in_parameter >= 0 && in_parameter < parameter.elements;
        const bool mastered = master && in_master >= 0 && in_master < master.elements;
        if (!here && !mastered) return;
        const float drawn = value(element);
        if (here) store(parameter, in_parameter, drawn);
        if (mastered) store(master, in_master, drawn);
      });
    }
  }
}

}  // namespace zeroplan::executor
