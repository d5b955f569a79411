#include "planner/program/compile.hpp"

#include <optional>

#include "planner/program/approximations.hpp"
#include "planner/program/head.hpp"
#include "planner/program/known_orders.hpp"
#include "planner/program/layer_stack.hpp"
#include "planner/program/zero_policy.hpp"

namespace zeroplan::program {

namespace {

using describe::Model;
using describe::Plan;
using Kind = describe::ParameterGroup::Kind;

class Compiler {
 public:
  Compiler(const Model& model, const Plan& plan, const Shapes& shapes, Builder& builder,
           std::vector<Unit>& units)
      : plan_(plan),
        shapes_(shapes),
        builder_(builder),
        units_(units),
        tied_(model.is_shape() && model.tied_embeddings),
        zero_(builder, plan, units, tied_) {
    batch_.scalars = builder.buffer("scalars", DataType::fp32, Category::workspace, kScalars);
    if (!model.is_shape()) return;
    batch_.tokens = builder.buffer("tokens", DataType::int32, Category::workspace, shapes.tokens);
    batch_.targets = builder.buffer("targets", DataType::int32, Category::workspace, shapes.tokens);
    const Unit& first = units.front();
    embedding_.emplace(builder, zero_, shapes, first);
    layers_.emplace(builder, zero_, model, plan, shapes, units);
    for (const Unit& unit : units) {
      if (unit.kind == Kind::head) {
        head_.emplace(builder, zero_, model, plan, shapes, unit, tied_ ? &first : nullptr, *embedding_);
      }
    }
  }

  void step() {
    builder_.section(SectionKind::states, [&] {
      builder_.phase(Phase::setup);
      builder_.acquire(at(batch_.scalars));
      zero_.acquire_states();
    });
    builder_.section(SectionKind::cleared_gradients, [&] {
      builder_.phase(Phase::forward);
      // Loss, overflow and norm start from nothing; the loss scale behind them stays.
      builder_.emit(Op::fill_zero, {static_cast<std::int64_t>(Scalar::loss_scale)}, {at(batch_.scalars)});
      zero_.zero_gradients();
    });
    const std::int64_t passes = plan_.gradient_accumulation;
    if (passes > 1 && zero_.last_differs()) {
      builder_.times(passes - 1, [&] { micro_batch(false); });
      micro_batch(true);
    } else {
      builder_.times(passes, [&] { micro_batch(true); });
    }
    builder_.section(SectionKind::step, [&] {
      zero_.step(batch_.scalars);
      builder_.wait_for_all();
    });
  }

 private:
  void micro_batch(bool last) {
    builder_.section(SectionKind::micro_batch, [&] {
      builder_.phase(Phase::forward);
      zero_.begin_micro_batch();
      opaque_forward();
      if (head_) compute_forward();
      builder_.phase(Phase::backward);
      zero_.begin_backward();
      if (head_) compute_backward(last);
      opaque_backward(last);
      zero_.end_micro_batch();
    });
  }

  void compute_forward() {
    builder_.acquire(at(batch_.tokens));
    builder_.acquire(at(batch_.targets));
    builder_.emit(Op::load_batch, {shapes_.tokens}, {at(batch_.tokens), at(batch_.targets)});
    layers_->begin();
    builder_.section(SectionKind::embedding_forward, [&] {
      embedding_->acquire_kept();
      embedding_->forward(batch_, layers_->acquire_input());
    });
    layers_->forward();
    builder_.section(SectionKind::head_forward, [&] { head_->forward(batch_, layers_->output()); });
  }

  void compute_backward(bool last) {
    builder_.section(SectionKind::head_backward,
                     [&] { head_->backward(batch_, layers_->output(), layers_->gradient(), last); });
    layers_->backward(last);
    builder_.section(SectionKind::embedding_backward, [&] {
      embedding_->backward(batch_, layers_->gradient(), last);
      embedding_->release_kept();
    });
    layers_->end();
    builder_.release(at(batch_.targets));
    builder_.release(at(batch_.tokens));
  }

  // Parameters whose computation is not described are still gathered and reduced as often as the others.
  void opaque_forward() {
    for (const Unit& unit : units_) {
      if (!unit.is_opaque()) continue;
      zero_.acquire_weights(unit);
      zero_.gather(unit);
      zero_.release_weights(unit);
    }
  }

  void opaque_backward(bool last) {
    for (const Unit& unit : units_) {
      if (!unit.is_opaque()) continue;
      zero_.acquire_weights(unit);
      zero_.acquire_gradients(unit);
      zero_.gather(unit, 0, ZeroPolicy::Pass::backward);
      zero_.reduce(unit, last);
      zero_.release_gradients(unit);
      zero_.release_weights(unit);
    }
  }

  const Plan& plan_;
  Shapes shapes_;
  Builder& builder_;
  std::vector<Unit>& units_;
  bool tied_;
  ZeroPolicy zero_;
  MicroBatch batch_;
  std::optional<Embedding> embedding_;
  std::optional<LayerStack> layers_;
  std::optional<Head> head_;
};

void list_parameters(const std::vector<Unit>& units, std::int64_t tensor_rank, StepProgram& program) {
  for (const Unit& unit : units) {
    if (unit.is_opaque()) continue;
    program.units.push_back(unit);  // the placement that it is
    for (const LocalTensor& tensor : unit.tensors) {
      TensorPlacement& entry = program.tensors.emplace_back();
      entry.name = tensor.name;
      entry.unit = program.units.size() - 1;
      entry.outputs = tensor.outputs;
      entry.inputs = tensor.inputs;
      entry.copies = tensor.copies;
      entry.offset = tensor.offset;
      entry.first_output = tensor.divides_outputs ? tensor_rank * tensor.outputs : 0;
      entry.first_input = tensor.divides_inputs ? tensor_rank * tensor.inputs : 0;
      entry.whole_outputs = tensor.whole_outputs;
      entry.whole_inputs = tensor.whole_inputs;
      entry.replicated = tensor.replicated;
    }
  }
}

// Ranks of a tensor-parallel group are neighbours, and so are the data-parallel ranks of a shard.
void set_groups(const Plan& plan, RankPosition rank, StepProgram& program) {
  program.groups.clear();
  program.ranks = plan.devices();
  const auto add = [&](GroupKind kind, std::int64_t size, std::int64_t index, std::int64_t stride) {
    if (size > 1) program.groups.push_back({kind, size, index, stride});
  };
  const std::int64_t data = rank.data_parallel;
  const std::int64_t tensor = plan.tensor_parallel;
  add(GroupKind::data_parallel, plan.data_parallel, data, tensor);
  const std::int64_t partitions = partitions_of(plan);
  if (partitions > 1 && partitions < plan.data_parallel) {
    add(GroupKind::shard, partitions, data % partitions, tensor);
    add(GroupKind::replica, plan.data_parallel / partitions, data / partitions, tensor * partitions);
  }
  if (effective_stage(plan) == 3 && plan.secondary_shard > 0) {
    add(GroupKind::secondary_shard, plan.secondary_shard, data % plan.secondary_shard, tensor);
  }
  add(GroupKind::tensor_parallel, tensor, rank.tensor_parallel, 1);
}

}  // namespace

void compile_into(const Model& model, const Plan& plan, RankPosition rank, StepProgram& program) {
  program.buffers.clear();
  program.code.clear();
  program.sections.clear();
  program.tensors.clear();
  program.units.clear();
  program.buffers.reserve(256);
  program.tensors.reserve(32);
  program.code.reserve(512);
  set_groups(plan, rank, program);
  program.sections.reserve(32);
  program.layers = model.is_shape() ? model.layers + model.encoder_layers : 0;
  program.tokens_per_step = plan.global_batch() * plan.sequence;
  program.states_only = !model.is_shape();
  program.constants = make_constants(model, plan, rank);
  program.approximations = approximations_of(model);

  Units units = make_units(model, plan, partitions_of(plan), rank);
  program.parameters = units.parameters;
  program.active_parameters = units.active_parameters;
  Builder builder(program, plan.engine->alignment_bytes);
  Compiler(model, plan, make_shapes(model, plan), builder, units.units).step();
  list_parameters(units.units, rank.tensor_parallel, program);
  set_order(program);
}

StepProgram compile(const Model& model, const Plan& plan, RankPosition rank) {
  StepProgram program;
  compile_into(model, plan, rank, program);
  return program;
}

}  // namespace zeroplan::program
