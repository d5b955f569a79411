#include "executor/initialize.hpp"

#include <cmath>
#include <numbers>

#include "executor/device/floats.hpp"
#include "executor/random.hpp"

namespace zeroplan::executor {

namespace {

using program::BufferId;
using program::kNoBuffer;

// The sum of four uniform numbers, with mean 0 and deviation 1: normal enough for weights, never beyond 3.5
// deviations, and ten times cheaper than an exact one.
float nearly_normal(std::uint64_t bits) {
  constexpr int kParts = 4;
  constexpr float kUnit = 0x1.0p-16F;
  float sum = 0;
  for (int i = 0; i < kParts; ++i) sum += (static_cast<float>(bits >> (16 * i) & 0xffff) + 0.5F) * kUnit;
  return (sum - kParts / 2.0F) * std::numbers::sqrt3_v<float>;  // the variance of one is 1/12
}

bool ends_with(std::string_view text, std::string_view end) { return text.ends_with(end); }

}  // namespace

ParameterValue normal_initialization(std::uint64_t seed, std::int64_t layers, float norm_weight) {
  constexpr float kDeviation = 0.02F;
  const float residual = kDeviation / std::sqrt(2 * static_cast<float>(layers));
  return [seed, residual, norm_weight](const ParameterElement& element) {
    if (ends_with(element.name, ".bias")) return 0.0F;
    if (element.name.find("norm") != std::string_view::npos) return norm_weight;
    const bool to_residual =
        ends_with(element.name, "attention.output.weight") || ends_with(element.name, "down.weight");
    std::uint64_t counter = seed ^ element.key;
    for (const std::int64_t part : {element.layer, element.copy, element.output, element.input}) {
      counter = mix(counter ^ static_cast<std::uint64_t>(part));
    }
    return nearly_normal(counter) * (to_residual ? residual : kDeviation);
  };
}

void for_each_element(const program::TensorPlacement& tensor, std::int64_t layer,
                      const std::function<void(const ParameterElement&, Elements)>& visit) {
  Elements flat = tensor.offset;
  ParameterElement element{.name = tensor.name, .key = hash_of(tensor.name), .layer = layer};
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

void clear_states(const program::StepProgram& program, Interpreter& interpreter) {
  Device& device = interpreter.device();
  const auto clear = [&](const Tensor& tensor, Elements elements) {
    Kernel fill;
    fill.op = program::Op::fill_zero;
    fill.dims = {elements};
    fill.operands[0] = tensor;
    device.execute(fill, program::Stream::compute, {});
    device.synchronize();
  };
  clear(interpreter.scalars(), program::kScalars);
  for (const program::UnitPlacement& unit : program.units) {
    const Elements whole = unit.partition * program.shard_group(unit).size;
    for (std::int64_t layer = unit.first_layer; layer < unit.first_layer + unit.layers; ++layer) {
      const auto clear_buffer = [&](BufferId buffer, Elements elements) {
        if (buffer != kNoBuffer) clear(interpreter.tensor(buffer, layer), elements);
      };
      clear_buffer(unit.parameter, unit.parameter_is_partition ? unit.partition : whole);
      clear_buffer(unit.master, unit.partition);
      for (const BufferId state : unit.states) clear_buffer(state, unit.partition);
    }
  }
}

void initialize_parameters(const program::StepProgram& program, Interpreter& interpreter,
                           const ParameterValue& value) {
  for (const program::TensorPlacement& placement : program.tensors) {
    const program::UnitPlacement& unit = program.units[placement.unit];
    const Elements own = program.own_begin(unit);
    // Where a buffer holds a partition, flat indices start at the rank's own.
    const Elements parameter_begin = unit.parameter_is_partition ? own : 0;
    const Elements master_begin = unit.is_partitioned() ? own : 0;
    for (std::int64_t layer = unit.first_layer; layer < unit.first_layer + unit.layers; ++layer) {
      const Tensor parameter = interpreter.tensor(unit.parameter, layer);
      const Tensor master = unit.master != kNoBuffer ? interpreter.tensor(unit.master, layer) : Tensor{};
      FloatWriter parameters(interpreter.device(), parameter), masters(interpreter.device(), master);
      for_each_element(placement, layer, [&](const ParameterElement& element, Elements flat) {
        const Elements in_parameter = flat - parameter_begin;
        const Elements in_master = flat - master_begin;
        const bool here = in_parameter >= 0 && in_parameter < parameter.elements;
        const bool mastered = master && in_master >= 0 && in_master < master.elements;
        if (!here && !mastered) return;
        const float drawn = value(element);
        if (here) parameters.put(in_parameter, drawn);
        if (mastered) masters.put(in_master, drawn);
      });
    }
  }
}

}  // namespace zeroplan::executor
