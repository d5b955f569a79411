#include "planner/program/embedding.hpp"

namespace zeroplan::program {

Embedding::Embedding(Builder& builder, ZeroPolicy& zero, const Shapes& shapes, const Unit& unit)
    : builder_(builder), zero_(zero), shapes_(shapes), unit_(unit) {
  if (const LocalTensor* token = unit.find("embedding.token")) {
    width_ = token->inputs;
    rows_ = token->outputs;
    first_row_ = rows_ * builder.tensor_rank();
    table_ = builder.view("table", unit.weights, token->offset, token->elements());
    table_gradient_ = builder.view("table_gradient", unit.weight_gradients, token->offset, token->elements());
  }
  if (const LocalTensor* position = unit.find("embedding.position")) {
    positions_ = builder.view("positions", unit.weights, position->offset, position->elements());
    positions_gradient_ =
        builder.view("positions_gradient", unit.weight_gradients, position->offset, position->elements());
  }
  mask_ = builder.buffer("embedding.mask", DataType::uint8, Category::activation,
                         shapes.dropout ? shapes.tokens * shapes.hidden : 0);
  projection_ = Parameters(builder, unit).linear({{"embedding.projection.weight", {}}});
  if (projection_.weight == kNoBuffer) return;
  const Elements narrow = shapes.tokens * width_;
  narrow_ = builder.buffer("embedding.narrow", shapes.compute, Category::activation, narrow);
  narrow_gradient_ = builder.buffer("embedding.narrow_gradient", shapes.compute, Category::activation,
                                    shapes.in_place ? 0 : narrow);
}

void Embedding::acquire_kept() {
  builder_.acquire(at(mask_));
  builder_.acquire(at(narrow_));
}

void Embedding::release_kept() {
  builder_.release(at(narrow_));
  builder_.release(at(mask_));
}

void Embedding::look_up(const MicroBatch& batch, Operand out) {
  const BufferId positions = is_projected() ? kNoBuffer : positions_;
  builder_
      .emit(Op::embedding_forward, {shapes_.tokens, width_, rows_, first_row_},
            {at(batch.tokens), at(table_), at(positions), out})
      .extra = narrow<std::uint32_t>(shapes_.sequence);
  emit_tensor_all_reduce(builder_, shapes_, out, width_);
}

// Behind a projection every rank has the whole embedding, and adds every position.
void Embedding::add_positions(const MicroBatch& batch, Operand out) {
  if (positions_ == kNoBuffer) return;
  builder_
      .emit(Op::embedding_forward, {shapes_.tokens, shapes_.hidden, 0, 0},
            {at(batch.tokens), at(kNoBuffer), at(positions_), out})
      .extra = narrow<std::uint32_t>(shapes_.sequence);
}

void Embedding::forward(const MicroBatch& batch, Operand out) {
  zero_.acquire_weights(unit_);
  zero_.gather(unit_);
  if (is_projected()) {
    look_up(batch, at(narrow_));
    emit_linear(builder_, projection_, shapes_.tokens, at(narrow_), out);
    add_positions(batch, out);
  } else {
    look_up(batch, out);
  }
  if (mask_ != kNoBuffer) {
    builder_.emit(Op::dropout_forward, {shapes_.tokens * shapes_.hidden}, {out, at(mask_), out});
  }
  zero_.release_weights(unit_);
}

void Embedding::backward(const MicroBatch& batch, Operand gradient, bool last) {
  zero_.acquire_gradients(unit_);
  if (mask_ != kNoBuffer) {
    builder_.emit(Op::dropout_backward, {shapes_.tokens * shapes_.hidden}, {at(mask_), gradient});
  }
  if (is_projected()) {
    project_backward(batch, gradient);
  } else {
    builder_
        .emit(Op::embedding_backward, {shapes_.tokens, width_, rows_, first_row_},
              {gradient, at(batch.tokens), at(table_gradient_), at(positions_gradient_)})
        .extra = narrow<std::uint32_t>(shapes_.sequence);
  }
  zero_.reduce(unit_, last);
  zero_.release_gradients(unit_);
}

void Embedding::project_backward(const MicroBatch& batch, Operand gradient) {
  const auto sequence = narrow<std::uint32_t>(shapes_.sequence);
  if (positions_gradient_ != kNoBuffer) {
    builder_
        .emit(Op::embedding_backward, {shapes_.tokens, shapes_.hidden, 0, 0},
              {gradient, at(batch.tokens), at(kNoBuffer), at(positions_gradient_)})
        .extra = sequence;
  }
  builder_.acquire(at(narrow_gradient_));
  zero_.acquire_weights(unit_);
  zero_.gather(unit_, 0, ZeroPolicy::Pass::backward);
  const Operand narrowed = narrow_gradient_ != kNoBuffer ? at(narrow_gradient_) : at(narrow_);
  emit_weight_gradient(builder_, projection_, shapes_.tokens, gradient, at(narrow_));
  emit_input_gradient(builder_, projection_, shapes_.tokens, gradient, narrowed);
  builder_
      .emit(Op::embedding_backward, {shapes_.tokens, width_, rows_, first_row_},
            {narrowed, at(batch.tokens), at(table_gradient_), at(kNoBuffer)})
      .extra = sequence;
  zero_.release_weights(unit_);
  builder_.release(at(narrow_gradient_));
}

}  // namespace zeroplan::program
