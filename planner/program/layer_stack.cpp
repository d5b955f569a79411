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
  const Elements own = part_ * (partition ? builder.program().tensor_parallel.rank : 0);
  bottom_ = builder.buffer(recompute_ ? "stream" : "residual_gradient", shapes.compute, Category::activation,
                           padded);
  block_input_ = builder.buffer("block_input", shapes.compute, Category::activation, padded,
                                {recompute_ ? interval_ + 1 : layers_ + 1, 0});
  own_part_ = partition ? builder.view("stream.own", bottom_, own, part_) : bottom_;
  own_input_part_ = partition ? builder.view("block_input.own", block_input_, own, part_) : block_input_;

  groups_.reserve(units.size());
  for (const Unit& unit : units) {
    if (!unit.is_layer()) continue;
    const Instances instances{recompute_ ? std::min(interval_, unit.layers) : unit.layers, unit.first_layer};
    const BufferId checkpoint = recompute_
                                    ? builder.buffer("checkpoint", shapes.compute, Category::checkpoint,
                                                     part_, {unit.layers, unit.first_layer},
                                                     plan.offload_activations ? Space::host : Space::device)
                                    : kNoBuffer;
    groups_.push_back({&unit, Block(builder, model, plan, shapes, unit, instances), checkpoint});
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
  const std::int64_t first = unit.first_layer + (reverse ? count - 1 : 0);
  const std::int64_t last = unit.first_layer + (reverse ? 0 : count - 1);
  if (!zero_.gathers()) {
    builder_.layers(count, first, step, body);
    return;
  }
  if (zero_.prefetch_layers() == 0) {
    builder_.layers(count, first, step, [&] {
      zero_.gather(unit);
      body();
    });
    return;
  }
  builder_.layers(1, first, step, [&] { zero_.gather(unit); });
  builder_.layers(count - 1, first, step, [&] {
    zero_.gather(unit, static_cast<std::int16_t>(step));
    body();
  });
  builder_.layers(1, last, step, body);
}

void LayerStack::forward() {
  for (Group& group : groups_) {
    if (interval_ == 1) {
      over_layers(*group.unit, false, [&] { forward_layer(group); });
    } else {
      forward_blocks(group);
    }
  }
}

void LayerStack::forward_layer(Group& group) {
  builder_.section(SectionKind::layer_forward, [&] {
    if (recompute_) {
      save_checkpoint(group);
      group.block.forward(Keep::nothing, at(bottom_), at(bottom_));
    } else {
      group.block.forward(Keep::activations, at(block_input_), at(block_input_, 1));
    }
  });
}

void LayerStack::forward_blocks(Group& group) {
  const Unit& unit = *group.unit;
  const auto block = [&](std::int64_t layers) {
    save_checkpoint(group);
    builder_.layers(layers, 0, 1, [&] {
      zero_.gather(unit);
      builder_.section(SectionKind::layer_forward,
                       [&] { group.block.forward(Keep::nothing, at(bottom_), at(bottom_)); });
    });
  };
  const std::int64_t whole = unit.layers / interval_;
  builder_.layers(whole, unit.first_layer, interval_, [&] { block(interval_); });
  const std::int64_t rest = unit.layers - whole * interval_;
  if (rest > 0) builder_.layers(1, unit.first_layer + whole * interval_, 1, [&] { block(rest); });
}

void LayerStack::save_checkpoint(const Group& group) {
  const Operand checkpoint = at(group.checkpoint);
  builder_.acquire(checkpoint);
  Instruction& instruction = builder_.emit(plan_.offload_activations ? Op::copy_to_host : Op::copy, {part_},
                                           {at(own_part_), checkpoint});
  if (!plan_.engine.overlaps_checkpoint_copies) instruction.stream = Stream::compute;
}

void LayerStack::restore_checkpoint(const Group& group) {
  const Operand checkpoint = at(group.checkpoint);
  builder_.acquire(at(block_input_));
  Instruction& instruction = builder_.emit(plan_.offload_activations ? Op::copy_to_device : Op::copy, {part_},
                                           {checkpoint, at(own_input_part_)});
  if (!plan_.engine.overlaps_checkpoint_copies) instruction.stream = Stream::compute;
  if (plan_.partition_activations) {
    builder_.collective(Op::all_gather, zeroplan::program::Group::tensor_parallel,
                        part_ * plan_.tensor_parallel, {at(own_input_part_), at(block_input_)});
  }
}

void LayerStack::backward(bool last) {
  for (auto group = groups_.rbegin(); group != groups_.rend(); ++group) {
    if (interval_ == 1) {
      over_layers(*group->unit, true, [&] {
        builder_.section(SectionKind::layer_backward, [&] {
          recompute_ ? backward_block(*group, 1, last) : backward_layer(*group, last);
        });
      });
    } else {
      backward_blocks(*group, last);
    }
  }
  if (!recompute_) builder_.release(at(block_input_));
}

void LayerStack::backward_layer(Group& group, bool last) {
  builder_.release(at(block_input_, 1));
  zero_.clear_gradients(*group.unit);
  group.block.backward(at(block_input_), gradient());
  zero_.reduce(*group.unit, last);
}

void LayerStack::backward_blocks(Group& group, bool last) {
  const Unit& unit = *group.unit;
  const std::int64_t whole = unit.layers / interval_;
  const std::int64_t rest = unit.layers - whole * interval_;
  const auto block = [&](std::int64_t layers) {
    builder_.section(SectionKind::layer_backward, [&] { backward_block(group, layers, last); });
  };
  if (rest > 0) builder_.layers(1, unit.first_layer + whole * interval_, 1, [&] { block(rest); });
  builder_.layers(whole, unit.first_layer + (whole - 1) * interval_, -interval_, [&] { block(interval_); });
}

void LayerStack::backward_block(Group& group, std::int64_t layers, bool last) {
  restore_checkpoint(group);
  const auto recompute = [&] {
    const Builder::Recomputing recomputing(builder_);
    group.block.forward(Keep::activations, at(block_input_), at(block_input_, 1));
  };
  if (interval_ == 1) {
    recompute();
    backward_layer(group, last);
  } else {
    builder_.layers(layers, 0, 1, [&] {
      zero_.gather(*group.unit);
      recompute();
    });
    builder_.layers(layers, layers - 1, -1, [&] {
      zero_.gather(*group.unit);
      backward_layer(group, last);
    });
  }
  builder_.release(at(block_input_));
  builder_.release(at(group.checkpoint));
}

}  // namespace zeroplan::program
