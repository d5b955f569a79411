#include "planner/program/attention.hpp"

namespace zeroplan::program {

using describe::AttentionKernel;
using describe::Model;
using describe::Plan;

Attention::Attention(Builder& builder, const Model& model, const Plan& plan, const Shapes& shapes,
                     const Unit& unit, Instances instances)
    : builder_(builder),
      shapes_(shapes),
      flash_(plan.attention == AttentionKernel::flash),
      recompute_scores_(plan.recompute == describe::Recompute::selective),
      rotary_(model.position == describe::Position::rotary),
      latent_(model.latent.has_value()),
      normed_as_one_(model.query_key_norm == describe::QueryKeyNorm::full),
      kept_(builder),
      branch_(
          builder, shapes,
          norms_on_branch(model)
              ? Parameters(builder, unit).norm("attention_norm.weight", "attention_norm.bias")
              : Parameters(builder, unit).norm("attention_output_norm.weight", "attention_output_norm.bias"),
          {"attention.branch", "attention.branch_statistics", "attention.hidden_mask",
           "attention.branch_gradient"},
          instances) {
  Parameters parameters(builder, unit);
  const std::int64_t tokens = shapes.tokens;
  const auto fp32 = [&](std::string_view name, Elements elements, Instances count) {
    return builder_.buffer(name, DataType::fp32, Category::activation, elements, count);
  };

  if (!norms_on_branch(model)) norm_ = parameters.norm("attention_norm.weight", "attention_norm.bias");
  const bool has_norm = norm_.parameters != kNoBuffer;
  normed_ = activation("attention.normed", shapes.hidden, instances);
  statistics_ = fp32("attention.norm_statistics", has_norm ? tokens * shapes.norm_statistics : 0, instances);
  context_width_ = shapes.heads * shapes.head_dim;
  rotary_heads_ = shapes.heads + shapes.kv_heads;
  rotary_dim_ = shapes.head_dim;
  if (latent_) {
    declare_latent(model, parameters, instances);
  } else {
    packed_linear_ = parameters.linear({{"attention.query.weight", "attention.query.bias"},
                                        {"attention.key.weight", "attention.key.bias"},
                                        {"attention.value.weight", "attention.value.bias"}});
    packed_ = activation("attention.packed", packed_linear_.outputs, instances);
  }
  const bool query_key_norm = model.query_key_norm != describe::QueryKeyNorm::none && !latent_;
  if (query_key_norm) {
    query_norm_ = parameters.norm("attention.query_norm.weight", {});
    key_norm_ = parameters.norm("attention.key_norm.weight", {});
  }
  query_key_ =
      activation("attention.query_key", query_key_norm ? rotary_heads_ * shapes.head_dim : 0, instances);
  query_key_statistics_ =
      fp32("attention.query_key_statistics", query_key_norm ? tokens * rotary_heads_ : 0, instances);

  const Elements square = shapes.sequences * shapes.heads * shapes.sequence * shapes.sequence;
  const Instances score_instances = recompute_scores_ ? Instances{} : instances;
  log_sum_exp_ = fp32("attention.log_sum_exp", flash_ ? tokens * shapes.heads : 0, instances);
  if (!flash_) {
    const bool dropout = shapes.dropout;
    scores_.probabilities = builder.buffer("attention.probabilities", shapes.compute, Category::activation,
                                           square, score_instances);
    scores_.mask = builder.buffer("attention.dropout_mask", DataType::uint8, Category::activation,
                                  dropout ? square : 0, score_instances);
    scores_.dropped = builder.buffer("attention.dropped", shapes.compute, Category::activation,
                                     dropout ? square : 0, score_instances);
    const bool wide =
        plan.attention == AttentionKernel::materialized_fp32 && shapes.compute != DataType::fp32;
    scores_.fp32 =
        builder.buffer("attention.fp32_scores", DataType::fp32, Category::workspace, wide ? square : 0);
    scores_.gradient =
        builder.buffer("attention.scores_gradient", shapes.compute, Category::activation, square);
  }
  context_ = activation("attention.context", context_width_, instances);

  output_ = parameters.linear({{"attention.output.weight", "attention.output.bias"}});
  normed_gradient_ = activation("attention.normed_gradient", shapes.in_place ? 0 : shapes.hidden, {});
  packed_gradient_ = activation("attention.packed_gradient", builder_[packed_].elements / tokens, {});
  context_gradient_ = activation("attention.context_gradient", context_width_, {});
  row_dots_ = builder.buffer("attention.row_dots", DataType::fp32, Category::workspace,
                             flash_ ? tokens * shapes.heads : 0);
}

BufferId Attention::activation(std::string_view name, Elements width, Instances instances) {
  return builder_.buffer(name, shapes_.compute, Category::activation, shapes_.tokens * width, instances);
}

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, Section 2.1): queries, and keys with values,
// through low-rank projections, which all tensor-parallel ranks compute alike; one shared rotary key beside
// them.
void Attention::declare_latent(const Model& model, Parameters& parameters, Instances instances) {
  const describe::LatentAttention& latent = *model.latent;
  query_down_ = parameters.linear({{"attention.query_down.weight", {}}});
  query_down_norm_ = parameters.norm("attention.query_down_norm.weight", {});
  query_up_ = latent.q_lora > 0 ? parameters.linear({{"attention.query_up.weight", {}}})
                                : parameters.linear({{"attention.query.weight", {}}});
  key_value_down_ = parameters.linear({{"attention.key_value_down.weight", {}}});
  key_value_down_norm_ = parameters.norm("attention.key_value_down_norm.weight", {});
  key_value_up_ = parameters.linear({{"attention.key_value_up.weight", {}}});
  query_latent_ = activation("attention.query_latent", latent.q_lora, instances);
  query_latent_normed_ = activation("attention.query_latent_normed", latent.q_lora, instances);
  key_value_latent_ =
      activation("attention.key_value_latent", latent.kv_lora + latent.qk_rope_dim, instances);
  key_value_latent_normed_ = activation("attention.key_value_latent_normed", latent.kv_lora, instances);
  latent_statistics_ = builder_.buffer("attention.latent_statistics", DataType::fp32, Category::activation,
                                       2 * shapes_.tokens, instances);
  packed_ = activation("attention.packed", query_up_.outputs + key_value_up_.outputs + latent.qk_rope_dim,
                       instances);
  context_width_ = shapes_.heads * latent.v_dim;
  rotary_heads_ = shapes_.heads + 1;
  rotary_dim_ = latent.qk_rope_dim;
}

Instruction& Attention::emit_attention(Op op, std::initializer_list<Operand> operands) {
  Instruction& instruction =
      builder_.emit(op, {shapes_.sequences, shapes_.sequence, shapes_.heads, shapes_.head_dim}, operands);
  instruction.extra = narrow<std::uint32_t>(shapes_.kv_heads);
  return instruction;
}

void Attention::emit_rotary(Op op, Operand heads) {
  if (!rotary_) return;
  builder_.emit(op, {shapes_.tokens, rotary_heads_, rotary_dim_}, {heads}).extra =
      narrow<std::uint32_t>(shapes_.sequence);
}

// One norm over each head of a token, or one over all of them.
void Attention::emit_head_norms() {
  const auto emit = [&](const NormParameters& norm, std::int64_t heads, Elements first) {
    const std::int64_t rows = normed_as_one_ ? 1 : heads;
    builder_.emit(Op::norm_forward, {shapes_.tokens * rows, norm.width, rows, first},
                  {at(packed_), at(norm.parameters), at(query_key_), at(query_key_statistics_)});
  };
  emit(query_norm_, shapes_.heads, 0);
  emit(key_norm_, shapes_.kv_heads, shapes_.heads * shapes_.head_dim);
}

void Attention::emit_head_norms_backward() {
  const auto emit = [&](const NormParameters& norm, std::int64_t heads, Elements first) {
    const std::int64_t rows = normed_as_one_ ? 1 : heads;
    builder_
        .emit(Op::norm_backward, {shapes_.tokens * rows, norm.width, rows, first},
              {at(packed_gradient_), at(packed_), at(norm.parameters), at(query_key_statistics_),
               at(packed_gradient_), at(norm.gradient)})
        .flags |= kOverwrite;
  };
  emit(query_norm_, shapes_.heads, 0);
  emit(key_norm_, shapes_.kv_heads, shapes_.heads * shapes_.head_dim);
}

void Attention::forward(Keep keep, Operand in, Operand out, bool acquire_out) {
  Scope scope(builder_);
  scope.acquire(at(normed_));
  scope.acquire(at(statistics_));
  if (norm_.parameters != kNoBuffer) {
    emit_norm(builder_, norm_, shapes_.tokens, in, at(normed_), at(statistics_));
  } else {
    builder_.emit(Op::copy, {shapes_.tokens * shapes_.hidden}, {in, at(normed_)});
  }
  project(scope);
  attend(keep, scope);

  branch_.acquire(keep, scope);
  if (keep == Keep::activations) kept_ = scope;
  if (acquire_out) builder_.acquire(out);
  emit_linear(builder_, output_, shapes_.tokens, at(context_), branch_.product(keep, out), false);
  branch_.add(keep, output_.bias, in, out);
  if (keep == Keep::nothing) scope.release();
}

void Attention::project(Scope& scope) {
  if (latent_) {
    project_latent(scope);
  } else {
    scope.acquire(at(packed_));
    emit_linear(builder_, packed_linear_, shapes_.tokens, at(normed_), at(packed_));
  }
  Operand turned = at(packed_);
  if (query_key_ != kNoBuffer) {
    scope.acquire(at(query_key_));
    scope.acquire(at(query_key_statistics_));
    emit_head_norms();
    turned = at(query_key_);
  }
  emit_rotary(Op::rotary_forward, turned);
}

void Attention::project_latent(Scope& scope) {
  scope.acquire(at(query_latent_));
  scope.acquire(at(query_latent_normed_));
  scope.acquire(at(key_value_latent_));
  scope.acquire(at(key_value_latent_normed_));
  scope.acquire(at(latent_statistics_));
  scope.acquire(at(packed_));
  Operand query_input = at(normed_);
  if (query_latent_ != kNoBuffer) {
    emit_linear(builder_, query_down_, shapes_.tokens, at(normed_), at(query_latent_));
    emit_norm(builder_, query_down_norm_, shapes_.tokens, at(query_latent_), at(query_latent_normed_),
              at(latent_statistics_));
    query_input = at(query_latent_normed_);
  }
  emit_linear(builder_, query_up_, shapes_.tokens, query_input, at(packed_));
  emit_linear(builder_, key_value_down_, shapes_.tokens, at(normed_), at(key_value_latent_));
  emit_norm(builder_, key_value_down_norm_, shapes_.tokens, at(key_value_latent_),
            at(key_value_latent_normed_), at(latent_statistics_));
  emit_linear(builder_, key_value_up_, shapes_.tokens, at(key_value_latent_normed_), at(packed_));
}

void Attention::acquire_scores(Scope& scope) const {
  scope.acquire(at(scores_.probabilities));
  scope.acquire(at(scores_.mask));
  scope.acquire(at(scores_.dropped));
}

void Attention::attend(Keep keep, Scope& scope) {
  if (flash_) {
    scope.acquire(at(log_sum_exp_));
    scope.acquire(at(context_));
    emit_attention(Op::attention_forward, {at(packed_), at(query_key_), at(context_), at(log_sum_exp_)});
    return;
  }
  const bool keep_scores = keep == Keep::activations && !recompute_scores_;
  Scope temporary(builder_);
  if (keep_scores) acquire_scores(scope);
  scope.acquire(at(context_));
  if (!keep_scores) acquire_scores(temporary);
  compute_scores();
  const BufferId used = scores_.dropped != kNoBuffer ? scores_.dropped : scores_.probabilities;
  emit_attention(Op::attention_values, {at(used), at(packed_), at(context_)});
  temporary.release();
}

void Attention::compute_scores() {
  const std::int64_t rows = shapes_.sequences * shapes_.heads * shapes_.sequence;
  const Operand probabilities = at(scores_.probabilities);
  const Operand raw = scores_.fp32 != kNoBuffer ? at(scores_.fp32) : probabilities;
  builder_.acquire(at(scores_.fp32));
  emit_attention(Op::attention_scores, {at(packed_), at(query_key_), raw});
  builder_.emit(Op::softmax_forward, {rows, shapes_.sequence}, {raw, probabilities});
  builder_.release(at(scores_.fp32));
  if (scores_.dropped != kNoBuffer) {
    // A head's mask is its own, whichever rank has it.
    const Group ranks = builder_.program().group(GroupKind::tensor_parallel);
    const Elements part = shapes_.heads * shapes_.sequence * shapes_.sequence;
    builder_.emit(Op::dropout_forward, {rows * shapes_.sequence, part, ranks.size, ranks.rank},
                  {probabilities, at(scores_.mask), at(scores_.dropped)});
  }
}

void Attention::compute_backward(Operand in, Operand dy, Operand gradient) {
  const std::int64_t tokens = shapes_.tokens;
  Scope scope(builder_);
  scope.acquire(at(normed_gradient_));
  scope.acquire(at(packed_gradient_));
  Scope inner(builder_);
  inner.acquire(at(context_gradient_));
  builder_.acquire(branch_.gradient());
  const Operand branch_gradient = branch_.backward(dy);
  emit_weight_gradient(builder_, output_, tokens, branch_gradient, at(context_));
  emit_input_gradient(builder_, output_, tokens, branch_gradient, at(context_gradient_));
  builder_.release(branch_.gradient());
  attend_backward();
  inner.release();

  emit_rotary(Op::rotary_backward, at(packed_gradient_));
  if (query_key_ != kNoBuffer) {
    emit_head_norms_backward();
  }
  const Operand normed_gradient = normed_gradient_ != kNoBuffer ? at(normed_gradient_) : at(normed_);
  project_backward(normed_gradient);
  if (norm_.parameters != kNoBuffer) {
    emit_norm_backward(builder_, norm_, tokens, normed_gradient, in, at(statistics_), gradient, false);
  } else {
    builder_.emit(Op::accumulate, {tokens * shapes_.hidden}, {normed_gradient, gradient});
  }
  scope.release();
}

void Attention::project_backward(Operand normed_gradient) {
  if (latent_) {
    project_latent_backward(normed_gradient);
    emit_tensor_all_reduce(builder_, shapes_, normed_gradient);
    return;
  }
  emit_column_backward(builder_, shapes_, packed_linear_, shapes_.tokens, at(packed_gradient_), at(normed_),
                       normed_gradient);
}

void Attention::project_latent_backward(Operand normed_gradient) {
  const std::int64_t tokens = shapes_.tokens;
  const bool query_latent = query_latent_ != kNoBuffer;
  const Operand query_input = query_latent ? at(query_latent_normed_) : at(normed_);
  emit_weight_gradient(builder_, key_value_up_, tokens, at(packed_gradient_), at(key_value_latent_normed_));
  emit_input_gradient(builder_, key_value_up_, tokens, at(packed_gradient_), at(key_value_latent_normed_));
  emit_norm_backward(builder_, key_value_down_norm_, tokens, at(key_value_latent_normed_),
                     at(key_value_latent_), at(latent_statistics_), at(key_value_latent_), true);
  emit_weight_gradient(builder_, key_value_down_, tokens, at(key_value_latent_), at(normed_));
  emit_weight_gradient(builder_, query_up_, tokens, at(packed_gradient_), query_input);
  if (query_latent) {
    emit_input_gradient(builder_, query_up_, tokens, at(packed_gradient_), at(query_latent_normed_));
    emit_norm_backward(builder_, query_down_norm_, tokens, at(query_latent_normed_), at(query_latent_),
                       at(latent_statistics_), at(query_latent_), true);
    emit_weight_gradient(builder_, query_down_, tokens, at(query_latent_), at(normed_));
    emit_input_gradient(builder_, query_down_, tokens, at(query_latent_), normed_gradient);
  } else {
    emit_input_gradient(builder_, query_up_, tokens, at(packed_gradient_), normed_gradient);
  }
  emit_input_gradient(builder_, key_value_down_, tokens, at(key_value_latent_), normed_gradient, false);
}

void Attention::attend_backward() {
  const Operand dy = at(context_gradient_);
  if (flash_) {
    builder_.acquire(at(row_dots_));
    emit_attention(Op::attention_row_dot, {dy, at(context_), at(row_dots_)});
    emit_attention(Op::attention_backward,
                   {dy, at(packed_), at(query_key_), at(log_sum_exp_), at(row_dots_), at(packed_gradient_)});
    builder_.release(at(row_dots_));
    return;
  }
  Scope scope(builder_);
  if (recompute_scores_) {
    acquire_scores(scope);
    const Builder::Recomputing recomputing(builder_);
    compute_scores();
  }
  const std::int64_t rows = shapes_.sequences * shapes_.heads * shapes_.sequence;
  const bool dropout = scores_.dropped != kNoBuffer;
  scope.acquire(at(scores_.gradient));
  emit_attention(Op::attention_values_backward, {dy, at(dropout ? scores_.dropped : scores_.probabilities),
                                                 at(packed_), at(scores_.gradient), at(packed_gradient_)});
  if (dropout) {
    builder_.emit(Op::dropout_backward, {rows * shapes_.sequence}, {at(scores_.mask), at(scores_.gradient)});
  }
  builder_.emit(Op::softmax_backward, {rows, shapes_.sequence},
                {at(scores_.probabilities), at(scores_.gradient)});
  emit_attention(Op::attention_scores_backward,
                 {at(scores_.gradient), at(packed_), at(query_key_), at(packed_gradient_)});
  scope.release();
}

}  // namespace zeroplan::program
