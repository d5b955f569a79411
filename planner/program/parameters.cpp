#include "planner/program/parameters.hpp"

namespace zeroplan::program {

namespace {

struct Span {
  Elements offset = 0;
  Elements elements = 0;
  void add(const LocalTensor& tensor) {
    if (elements == 0) offset = tensor.offset;
    elements += tensor.elements();
  }
};

}  // namespace

Linear Parameters::linear(std::initializer_list<std::pair<std::string_view, std::string_view>> names) {
  Linear linear;
  Span weights;
  Span biases;
  for (const auto& [weight, bias] : names) {
    const LocalTensor* tensor = unit_.find(weight);
    if (tensor == nullptr) continue;
    weights.add(*tensor);
    linear.outputs += tensor->outputs;
    linear.inputs = tensor->inputs;
    if (const LocalTensor* vector = unit_.find(bias)) biases.add(*vector);
  }
  linear.weight = builder_.view("weight", unit_.weights, weights.offset, weights.elements);
  linear.weight_gradient =
      builder_.view("weight_gradient", unit_.weight_gradients, weights.offset, weights.elements);
  linear.bias = builder_.view("bias", unit_.weights, biases.offset, biases.elements);
  linear.bias_gradient =
      builder_.view("bias_gradient", unit_.weight_gradients, biases.offset, biases.elements);
  return linear;
}

NormParameters Parameters::norm(std::string_view weight, std::string_view bias) {
  NormParameters norm;
  const LocalTensor* tensor = unit_.find(weight);
  if (tensor == nullptr) return norm;
  Span span;
  span.add(*tensor);
  norm.width = tensor->outputs;
  if (const LocalTensor* vector = unit_.find(bias)) span.add(*vector);
  norm.parameters = builder_.view("norm", unit_.weights, span.offset, span.elements);
  norm.gradient = builder_.view("norm_gradient", unit_.weight_gradients, span.offset, span.elements);
  return norm;
}

}  // namespace zeroplan::program
