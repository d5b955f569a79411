#include "planner/program/layer_stack.hpp"

#include <algorithm>

namespace zeroplan::program {

LayerStack::LayerStack(Builder& builder, ZeroPolicy& zero, const describe::Model& model,
                       const describe::Plan& plan, const Shapes& shapes, const std::vector<Unit>& units)
    : builder_(builder),
      zero_(zero),
      plan_(plan),
      shapes_(shapes),
      recompute_(plan.recompute == describe::Recompute::full),
      interval_(recompute_ ? std::min(plan.checkpoint_interval, builder.program().layers) : 1),
      layers_(builder.program().layers),
      plane_(shapes.tokens * shapes.hidden) {
  const bool partition = plan.partition_activations;
  const std::int64_t ranks = partition ? plan.tensor_parallel : 1;
  part_ = div_ceil(plane_, ranks);
  const Elements padded = part_ * ranks;
  const Elements own = part_ * (partition ? builder.tensor_rank() : 0);
  bottom_ = builder.buffer(recompute_ ? "stream" : "residual_gradient", shapes.compute, Category::activation,
                           padded);
  block_input_ = builder.buffer("block_input", shapes.compute, Category::activation, padded,
                                {recompute_ ? interval_ + 1 : layers_ + 1, 0});
  own_part_ = partition ? builder.view("stream.own", bottom_, own, part_) : bottom_;
  own_input_part_ = partition ? builder.view("block_input.own", block_input_, own, part_) : block_input_;

  stacked_.reserve(units.size());
  for (const Unit& unit : units) {
    if (!unit.is_layer) continue;
    const Instances instances{recompute_ ? std::min(interval_, unit.layers) : unit.layers, unit.first_layer};
    const BufferId checkpoint = recompute_
                                    ? builder.buffer("checkpoint", shapes.compute, Category::checkpoint,
                                                     part_, {unit.layers, unit.first_layer},
                                                     plan.offload_activations ? Space::host : Space::device)
                                    : kNoBuffer;
    stacked_.push_back({&unit, Block(builder, model, plan, shapes, unit, instances), checkpoint});
  }
}

Operand LayerStack::acquire_input() {
  if (recompute_) return at(bottom_);
  builder_.acquire(at(block_input_));
  return at(block_input_);
}

Operand LayerStack::output() const {
  if (recompute_) return at(bottom_);
  return at(block_input_, -1);  // layer 0 less one is the last of layers + 1 instances
}

template <class Body>
void LayerStack::over_layers(const Unit& unit, bool reverse, Body&& body) {
  const std::int64_t count = unit.layers;
  const std::int64_t step = reverse ? -1 : 1;
  const auto pass = reverse ? ZeroPolicy::Pass::backward : ZeroPolicy::Pass::forward;
  const std::int64_t first = unit.first_layer + (reverse ? count - 1 : 0);
  const std::int64_t last = unit.first_layer + (reverse ? 0 : count - 1);
  if (!zero_.gathers()) {
    builder_.layers(count, first, step, body);
    return;
  }
  if (zero_.prefetch_layers() == 0) {
    builder_.layers(count, first, step, [&] {
      zero_.gather(unit, 0, pass);
      body();
    });
    return;
  }
  builder_.layers(1, first, step, [&] { zero_.gather(unit, 0, pass); });
  builder_.layers(count - 1, first, step, [&] {
    zero_.gather(unit, static_cast<std::int8_t>(step), pass);
    body();
  });
  builder_.layers(1, last, step, body);
}

void LayerStack::forward() {
  for (Alike& alike : stacked_) {
    if (interval_ == 1) {
      over_layers(*alike.unit, false, [&] { forward_layer(alike); });
    } else {
      forward_blocks(alike);
    }
  }
}

void LayerStack::forward_layer(Alike& alike) {
  builder_.section(SectionKind::layer_forward, [&] {
    if (recompute_) {
      save_checkpoint(alike);
      alike.block.forward(Keep::nothing, at(bottom_), at(bottom_));
    } else {
      alike.block.forward(Keep::activations, at(block_input_), at(block_input_, 1));
    }
  });
}

void LayerStack::forward_blocks(Alike& alike) {
  const Unit& unit = *alike.unit;
  const auto block = [&](std::int64_t layers) {
    save_checkpoint(alike);
    builder_.layers(layers, 0, 1, [&] {
      zero_.gather(unit);
      builder_.section(SectionKind::layer_forward,
                       [&] { alike.block.forward(Keep::nothing, at(bottom_), at(bottom_)); });
    });
  };
  const std::int64_t whole = unit.layers / interval_;
  builder_.layers(whole, unit.first_layer, interval_, [&] { block(interval_); });
  const std::int64_t rest = unit.layers - whole * interval_;
  if (rest > 0) builder_.layers(1, unit.first_layer + whole * interval_, 1, [&] { block(rest); });
}

void LayerStack::save_checkpoint(const Alike& alike) {
  const Operand checkpoint = at(alike.checkpoint);
  builder_.acquire(checkpoint);
  Instruction& instruction = builder_.emit(plan_.offload_activations ? Op::copy_to_host : Op::copy, {part_},
                                           {at(own_part_), checkpoint});
  if (!plan_.engine->overlaps_checkpoint_copies) instruction.stream = Stream::compute;
}

void LayerStack::restore_checkpoint(const Alike& alike) {
  const Operand checkpoint = at(alike.checkpoint);
  builder_.acquire(at(block_input_));
  Instruction& instruction = builder_.emit(plan_.offload_activations ? Op::copy_to_device : Op::copy, {part_},
                                           {checkpoint, at(own_input_part_)});
  if (!plan_.engine->overlaps_checkpoint_copies) instruction.stream = Stream::compute;
  if (plan_.partition_activations) {
    builder_.tensor_collective(Op::all_gather, part_ * plan_.tensor_parallel,
                               {at(own_input_part_), at(block_input_)});
  }
}

void LayerStack::backward(bool last) {
  for (auto alike = stacked_.rbegin(); alike != stacked_.rend(); ++alike) {
    if (interval_ == 1) {
      over_layers(*alike->unit, true, [&] {
        builder_.section(SectionKind::layer_backward, [&] {
          recompute_ ? backward_block(*alike, 1, last) : backward_layer(*alike, last);
        });
      });
    } else {
      backward_blocks(*alike, last);
    }
  }
  if (!recompute_) builder_.release(at(block_input_));
}

void LayerStack::backward_layer(Alike& alike, bool last) {
  builder_.release(at(block_input_, 1));
  zero_.clear_gradients(*alike.unit);
  alike.block.backward(at(block_input_), gradient());
  zero_.reduce(*alike.unit, last);
}

void LayerStack::backward_blocks(Alike& alike, bool last) {
  const Unit& unit = *alike.unit;
  const std::int64_t whole = unit.layers / interval_;
  const std::int64_t rest = unit.layers - whole * interval_;
  const auto block = [&](std::int64_t layers) {
    builder_.section(SectionKind::layer_backward, [&] { backward_block(alike, layers, last); });
  };
  if (rest > 0) builder_.layers(1, unit.first_layer + whole * interval_, 1, [&] { block(rest); });
  builder_.layers(whole, unit.first_layer + (whole - 1) * interval_, -interval_, [&] { block(interval_); });
}

void LayerStack::backward_block(Alike& alike, std::int64_t layers, bool last) {
  restore_checkpoint(alike);
  const auto recompute = [&] {
    const Builder::Recomputing recomputing(builder_);
    alike.block.forward(Keep::activations, at(block_input_), at(block_input_, 1));
  };
  if (interval_ == 1) {
    recompute();
    backward_layer(alike, last);
  } else {
    builder_.layers(layers, 0, 1, [&] {
      zero_.gather(*alike.unit, 0, ZeroPolicy::Pass::backward);
      recompute();
    });
    builder_.layers(layers, layers - 1, -1, [&] {
      zero_.gather(*alike.unit, 0, ZeroPolicy::Pass::backward);
      backward_layer(alike, last);
    });
  }
  builder_.release(at(block_input_));
  builder_.release(at(alike.checkpoint));
}

}  // namespace zeroplan::program
