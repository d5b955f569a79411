#include "planner/program/head.hpp"

#include <algorithm>

namespace zeroplan::program {

Head::Head(Builder& builder, ZeroPolicy& zero, const describe::Model& model, const describe::Plan& plan,
           const Shapes& shapes, const Unit& unit, const Unit* tied, const Embedding& embedding)
    : builder_(builder), zero_(zero), shapes_(shapes), unit_(unit), tied_(tied) {
  Parameters parameters(builder, unit);
  norm_ = parameters.norm("final_norm.weight", "final_norm.bias");
  logits_linear_ = parameters.linear({{"head.weight", "head.bias"}});
  if (tied != nullptr) {
    logits_linear_.weight = embedding.table();
    logits_linear_.weight_gradient = embedding.table_gradient();
    logits_linear_.inputs = embedding.width();
    logits_linear_.outputs = builder[embedding.table()].elements / embedding.width();
  }
  projection_ = parameters.linear({{"head.projection.weight", {}}});
  first_column_ = logits_linear_.outputs * builder.tensor_rank();
  vocabulary_columns_ =
      std::clamp<std::int64_t>(model.output_rows() - first_column_, 0, logits_linear_.outputs);
  const std::int64_t tokens = shapes.tokens;
  const Elements plane = tokens * shapes.hidden;
  const Elements logits = tokens * logits_linear_.outputs;
  normed_ = builder.buffer("head.normed", shapes.compute, Category::activation, plane);
  statistics_ = builder.buffer("head.norm_statistics", DataType::fp32, Category::activation,
                               norm_.parameters != kNoBuffer ? tokens * shapes.norm_statistics : 0);
  maximum_ = builder.buffer("head.maximum", DataType::fp32, Category::workspace, tokens);
  sums_ = builder.buffer("head.sums", DataType::fp32, Category::workspace, 2 * tokens);
  const std::int64_t copies = plan.engine->fp32_logits_copies;
  logits_ = builder.buffer("logits", copies > 0 ? DataType::fp32 : shapes.compute, Category::logits, logits);
  logits_copies_ = builder.reserve(builder.buffer("logits_copies", DataType::fp32, Category::logits, logits,
                                                  {std::max<std::int64_t>(0, copies - 1), 0}));
  // In fp32 the gradient is written over the logits.
  logits_gradient_ = builder.buffer("logits_gradient", shapes.compute, Category::logits,
                                    shapes.compute == DataType::fp32 && shapes.in_place ? 0 : logits);
  normed_gradient_ = builder.buffer("head.normed_gradient", shapes.compute, Category::activation,
                                    shapes.in_place ? 0 : plane);
  if (projection_.weight == kNoBuffer) return;
  const Elements narrow = tokens * projection_.outputs;
  projected_ = builder.buffer("head.projected", shapes.compute, Category::activation, narrow);
  projected_gradient_ = builder.buffer("head.projected_gradient", shapes.compute, Category::activation,
                                       shapes.in_place ? 0 : narrow);
}

void Head::emit_cross_entropy(Op op, std::initializer_list<Operand> operands) {
  builder_.emit(op, {shapes_.tokens, logits_linear_.outputs, first_column_, vocabulary_columns_}, operands);
}

void Head::forward(const MicroBatch& batch, Operand in) {
  const std::int64_t tokens = shapes_.tokens;
  zero_.acquire_weights(unit_);
  zero_.gather(unit_);
  if (tied_ != nullptr) {
    zero_.acquire_weights(*tied_);
    zero_.gather(*tied_);
  }
  builder_.acquire(at(normed_));
  builder_.acquire(at(statistics_));
  if (norm_.parameters != kNoBuffer) {
    emit_norm(builder_, norm_, tokens, in, at(normed_), at(statistics_));
  } else {
    builder_.emit(Op::copy, {tokens * shapes_.hidden}, {in, at(normed_)});
  }
  builder_.acquire(at(projected_));
  if (projected_ != kNoBuffer) emit_linear(builder_, projection_, tokens, at(normed_), at(projected_));
  builder_.acquire(at(maximum_));
  builder_.acquire(at(sums_));
  builder_.acquire(at(logits_));
  builder_.acquire_all(logits_copies_);
  emit_linear(builder_, logits_linear_, tokens, at(projected_ != kNoBuffer ? projected_ : normed_),
              at(logits_));
  emit_cross_entropy(Op::cross_entropy_maximum, {at(logits_), at(maximum_)});
  builder_.tensor_collective(Op::all_reduce, tokens, {at(maximum_)}, kMaximum);
  emit_cross_entropy(Op::cross_entropy_exponent, {at(logits_), at(batch.targets), at(maximum_), at(sums_)});
  builder_.tensor_collective(Op::all_reduce, 2 * tokens, {at(sums_)});
  builder_.emit(Op::cross_entropy_loss, {tokens}, {at(maximum_), at(sums_), at(batch.scalars)});
}

void Head::backward(const MicroBatch& batch, Operand in, Operand gradient, bool last) {
  const std::int64_t tokens = shapes_.tokens;
  zero_.acquire_gradients(unit_);
  builder_.acquire(at(normed_gradient_));
  builder_.acquire(at(projected_gradient_));
  builder_.acquire(at(logits_gradient_));
  const Operand dlogits = logits_gradient_ != kNoBuffer ? at(logits_gradient_) : at(logits_);
  const Operand dnormed = normed_gradient_ != kNoBuffer ? at(normed_gradient_) : at(normed_);
  emit_cross_entropy(Op::cross_entropy_backward,
                     {at(logits_), at(batch.targets), at(maximum_), at(sums_), at(batch.scalars), dlogits});
  if (projected_ == kNoBuffer) {
    emit_column_backward(builder_, shapes_, logits_linear_, tokens, dlogits, at(normed_), dnormed);
  } else {
    const Operand dprojected = projected_gradient_ != kNoBuffer ? at(projected_gradient_) : at(projected_);
    emit_column_backward(builder_, shapes_, logits_linear_, tokens, dlogits, at(projected_), dprojected);
    emit_weight_gradient(builder_, projection_, tokens, dprojected, at(normed_));
    emit_input_gradient(builder_, projection_, tokens, dprojected, dnormed);
  }
  builder_.release(at(logits_gradient_));
  builder_.release(at(projected_gradient_));
  if (norm_.parameters != kNoBuffer) {
    emit_norm_backward(builder_, norm_, tokens, dnormed, in, at(statistics_), gradient, true);
  } else {
    builder_.emit(Op::copy, {tokens * shapes_.hidden}, {dnormed, gradient});
  }
  builder_.release(at(normed_gradient_));
  zero_.reduce(unit_, last);
  zero_.release_gradients(unit_);
  builder_.release_all(logits_copies_);
  builder_.release(at(logits_));
  builder_.release(at(sums_));
  builder_.release(at(maximum_));
  builder_.release(at(projected_));
  builder_.release(at(statistics_));
  builder_.release(at(normed_));
  if (tied_ != nullptr) zero_.release_weights(*tied_);
  zero_.release_weights(unit_);
}

}  // namespace zeroplan::program
