#include "planner/program/mlp.hpp"

namespace zeroplan::program {

using describe::Model;
using describe::Plan;

namespace {

std::uint32_t activation_kind(const Model& model) {
  const bool gated = model.gated_ffn;
  switch (model.activation) {
    case describe::Activation::gelu:
      return static_cast<std::uint32_t>(gated ? ActivationKind::gated_gelu : ActivationKind::gelu);
    case describe::Activation::gelu_tanh:
      return static_cast<std::uint32_t>(gated ? ActivationKind::gated_gelu_tanh : ActivationKind::gelu_tanh);
    case describe::Activation::silu:
      return static_cast<std::uint32_t>(gated ? ActivationKind::gated_silu : ActivationKind::silu);
    case describe::Activation::relu:
      break;
  }
  return static_cast<std::uint32_t>(gated ? ActivationKind::gated_relu : ActivationKind::relu);
}

}  // namespace

Mlp::Mlp(Builder& builder, const Model& model, const Plan&, const Shapes& shapes, const Unit& unit,
         Instances instances)
    : builder_(builder),
      shapes_(shapes),
      experts_(unit.kind == describe::ParameterGroup::Kind::expert_layer),
      kept_(builder),
      branch_(builder, shapes,
              norms_on_branch(model)
                  ? Parameters(builder, unit).norm("mlp_norm.weight", "mlp_norm.bias")
                  : Parameters(builder, unit).norm("mlp_output_norm.weight", "mlp_output_norm.bias"),
              {"mlp.branch", "mlp.branch_statistics", "mlp.hidden_mask", "mlp.branch_gradient"}, instances) {
  Parameters parameters(builder, unit);
  const Elements plane = shapes.tokens * shapes.hidden;
  const Elements statistics = shapes.tokens * shapes.norm_statistics;
  if (!norms_on_branch(model)) {
    norm_ = parameters.norm("mlp_norm.weight", "mlp_norm.bias");
    if (norm_.parameters == kNoBuffer)
      norm_ = parameters.norm("attention_norm.weight", "attention_norm.bias");
  }
  normed_ = activation("mlp.normed", plane, instances);
  statistics_ = builder.buffer("mlp.norm_statistics", DataType::fp32, Category::activation,
                               norm_.parameters != kNoBuffer ? statistics : 0, instances);
  if (experts_) {
    declare_experts(model, parameters, instances);
  } else {
    dense_ = declare_network(model, parameters, "mlp", shapes.tokens, instances);
  }
  normed_gradient_ = activation("mlp.normed_gradient", shapes.in_place && !experts_ ? 0 : plane, {});
}

BufferId Mlp::activation(std::string_view name, Elements elements, Instances instances) {
  return builder_.buffer(name, shapes_.compute, Category::activation, elements, instances);
}

Mlp::Network Mlp::declare_network(const Model& model, Parameters& parameters, std::string_view prefix,
                                  std::int64_t rows, Instances instances) {
  Network network;
  if (prefix == "mlp") {
    network.up = parameters.linear({{"mlp.up.weight", "mlp.up.bias"}, {"mlp.gate.weight", "mlp.gate.bias"}});
    network.down = parameters.linear({{"mlp.down.weight", "mlp.down.bias"}});
  } else if (prefix == "experts") {
    network.up = parameters.linear(
        {{"experts.up.weight", "experts.up.bias"}, {"experts.gate.weight", "experts.gate.bias"}});
    network.down = parameters.linear({{"experts.down.weight", "experts.down.bias"}});
  } else {
    network.up = parameters.linear({{"shared_expert.up.weight", "shared_expert.up.bias"},
                                    {"shared_expert.gate.weight", "shared_expert.gate.bias"}});
    network.down = parameters.linear({{"shared_expert.down.weight", "shared_expert.down.bias"}});
  }
  network.rows = rows;
  network.width = network.down.inputs;
  network.activation = activation_kind(model);
  network.before = activation("mlp.before_activation", rows * network.up.outputs, instances);
  network.after = activation("mlp.after_activation", rows * network.width, instances);
  if (!shapes_.in_place) {
    network.after_gradient = activation("mlp.after_gradient", rows * network.width, {});
    network.before_gradient = activation("mlp.before_gradient", rows * network.up.outputs, {});
  }
  return network;
}

void Mlp::declare_experts(const Model& model, Parameters& parameters, Instances instances) {
  const describe::MixtureOfExperts& experts = *model.experts;
  expert_count_ = experts.experts;
  top_k_ = experts.top_k;
  const Elements routed = shapes_.tokens * top_k_ * shapes_.hidden;
  router_ = parameters.linear({{"router.weight", "router.bias"}});
  router_logits_ = builder_.buffer("mlp.router_logits", DataType::fp32, Category::activation,
                                   shapes_.tokens * expert_count_, instances);
  routed_ = activation("mlp.routed", routed, instances);
  expert_ = declare_network(model, parameters, "experts", shapes_.tokens * top_k_, instances);
  expert_outputs_ = activation("mlp.expert_outputs", routed, instances);
  if (experts.shared_ffn > 0) {
    shared_ = declare_network(model, parameters, "shared_expert", shapes_.tokens, instances);
    shared_output_ = activation("mlp.shared_output", shapes_.tokens * shapes_.hidden, instances);
  }
  router_gradient_ = builder_.buffer("mlp.router_gradient", DataType::fp32, Category::activation,
                                     shapes_.tokens * expert_count_);
}

Instruction& Mlp::emit_routing(Op op, std::initializer_list<Operand> operands) {
  return builder_.emit(op, {shapes_.tokens, expert_count_, top_k_, shapes_.hidden}, operands);
}

void Mlp::forward(Keep keep, Operand in, Operand residual, Operand out, bool acquire_out) {
  const std::int64_t tokens = shapes_.tokens;
  Scope scope(builder_);
  scope.acquire(at(normed_));
  scope.acquire(at(statistics_));
  if (norm_.parameters != kNoBuffer) {
    emit_norm(builder_, norm_, tokens, in, at(normed_), at(statistics_));
  } else {
    builder_.emit(Op::copy, {tokens * shapes_.hidden}, {in, at(normed_)});
  }
  if (experts_) {
    experts_forward(scope);
  } else {
    network_forward(dense_, scope, at(normed_));
  }

  branch_.acquire(keep, scope);
  if (keep == Keep::activations) kept_ = scope;
  if (acquire_out) builder_.acquire(out);
  if (!is_output_needed()) return;
  const Operand product = branch_.product(keep, out);
  if (experts_) {
    emit_routing(Op::combine_tokens, {at(router_logits_), at(expert_outputs_), at(shared_output_), product});
  } else {
    emit_linear(builder_, dense_.down, tokens, at(dense_.after), product, false);
  }
  branch_.add(keep, dense_.down.bias, residual, out);
  if (keep == Keep::nothing) scope.release();
}

// A layer that is computed again ends with its last activation that backward needs, where the engine stops
// there.
bool Mlp::is_output_needed() const {
  return !builder_.is_recomputing() || !shapes_.recompute_stops_early || experts_ || branch_.is_normed();
}

void Mlp::network_forward(const Network& network, Scope& scope, Operand x) {
  scope.acquire(at(network.before));
  emit_linear(builder_, network.up, network.rows, x, at(network.before));
  scope.acquire(at(network.after));
  builder_
      .emit(Op::activation_forward, {network.rows, network.width}, {at(network.before), at(network.after)})
      .extra = network.activation;
}

void Mlp::experts_forward(Scope& scope) {
  scope.acquire(at(router_logits_));
  emit_linear(builder_, router_, shapes_.tokens, at(normed_), at(router_logits_));
  scope.acquire(at(routed_));
  emit_routing(Op::route_tokens, {at(router_logits_), at(normed_), at(routed_)});
  network_forward(expert_, scope, at(routed_));
  scope.acquire(at(expert_outputs_));
  emit_linear(builder_, expert_.down, expert_.rows, at(expert_.after), at(expert_outputs_));
  if (shared_output_ == kNoBuffer) return;
  network_forward(shared_, scope, at(normed_));
  scope.acquire(at(shared_output_));
  emit_linear(builder_, shared_.down, shared_.rows, at(shared_.after), at(shared_output_));
}

void Mlp::compute_backward(Operand in, Operand dy, Operand gradient) {
  const std::int64_t tokens = shapes_.tokens;
  Scope scope(builder_);
  scope.acquire(at(normed_gradient_));
  scope.acquire(branch_.gradient());
  const Operand branch_gradient = branch_.backward(dy);
  const Operand normed_gradient = normed_gradient_ != kNoBuffer ? at(normed_gradient_) : at(normed_);
  if (experts_) {
    experts_backward(branch_gradient, normed_gradient);
    emit_tensor_all_reduce(builder_, shapes_, normed_gradient);
  } else {
    dense_backward(branch_gradient, normed_gradient);
  }
  if (norm_.parameters != kNoBuffer) {
    emit_norm_backward(builder_, norm_, tokens, normed_gradient, in, at(statistics_), gradient, false);
  } else {
    builder_.emit(Op::accumulate, {tokens * shapes_.hidden}, {normed_gradient, gradient});
  }
  scope.release();
}

void Mlp::dense_backward(Operand dy, Operand normed_gradient) {
  Scope scope(builder_);
  const Operand before = activation_backward(dense_, scope, dy);
  emit_column_backward(builder_, shapes_, dense_.up, dense_.rows, before, at(normed_), normed_gradient);
  scope.release();
}

void Mlp::network_backward(const Network& network, Operand dy, Operand x, Operand dx, bool overwrite) {
  Scope scope(builder_);
  const Operand before = activation_backward(network, scope, dy);
  emit_weight_gradient(builder_, network.up, network.rows, before, x);
  emit_input_gradient(builder_, network.up, network.rows, before, dx, overwrite);
  scope.release();
}

// Backward from the network's output to what went into its activation, the gradient of which is returned.
Operand Mlp::activation_backward(const Network& network, Scope& scope, Operand dy) {
  scope.acquire(at(network.after_gradient));
  scope.acquire(at(network.before_gradient));
  const Operand after = network.after_gradient != kNoBuffer ? at(network.after_gradient) : at(network.after);
  const Operand before =
      network.before_gradient != kNoBuffer ? at(network.before_gradient) : at(network.before);
  emit_weight_gradient(builder_, network.down, network.rows, dy, at(network.after));
  emit_input_gradient(builder_, network.down, network.rows, dy, after);
  builder_.emit(Op::activation_backward, {network.rows, network.width}, {after, at(network.before), before})
      .extra = network.activation;
  return before;
}

void Mlp::experts_backward(Operand dy, Operand normed_gradient) {
  builder_.acquire(at(router_gradient_));
  emit_routing(Op::combine_backward,
               {dy, at(router_logits_), at(expert_outputs_), at(expert_outputs_), at(router_gradient_)});
  network_backward(expert_, at(expert_outputs_), at(routed_), at(routed_), true);
  emit_routing(Op::route_backward, {at(routed_), normed_gradient}).flags |= kOverwrite;
  emit_weight_gradient(builder_, router_, shapes_.tokens, at(router_gradient_), at(normed_));
  emit_input_gradient(builder_, router_, shapes_.tokens, at(router_gradient_), normed_gradient, false);
  if (shared_output_ != kNoBuffer) network_backward(shared_, dy, at(normed_), normed_gradient, false);
  builder_.release(at(router_gradient_));
}

}  // namespace zeroplan::program
