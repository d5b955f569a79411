#include "planner/program/shapes.hpp"

#include <algorithm>
#include <cmath>

#include "planner/program/zero_layout.hpp"

namespace zeroplan::program {

Shapes make_shapes(const describe::Model& model, const describe::Plan& plan) {
  Shapes shapes;
  if (!model.is_shape()) return shapes;
  shapes.sequences = plan.micro_batch;
  shapes.sequence = plan.sequence;
  shapes.tokens = plan.micro_batch * plan.sequence;
  shapes.hidden = model.hidden;
  shapes.heads = div_ceil(model.heads, plan.tensor_parallel);
  shapes.kv_heads = div_ceil(model.kv_heads, std::min(plan.tensor_parallel, model.kv_heads));
  shapes.head_dim = model.head_dim;
  shapes.norm_statistics = model.norm == describe::Norm::layer_norm ? 2 : 1;
  shapes.compute = compute_type(plan.precision);
  shapes.dropout = plan.dropout;
  shapes.in_place = plan.engine->backward_in_place;
  // A mask of dropout is needed, and comes last; the next layer of a checkpointed block needs the output.
  shapes.recompute_stops_early =
      plan.engine->recompute_stops_early && !plan.dropout && plan.checkpoint_interval == 1;
  // In place, the input's gradient would overwrite what the weight's is made of.
  shapes.sum_beside_weight_gradient = plan.engine->tensor_sum_beside_weight_gradient && !shapes.in_place;
  return shapes;
}

ModelConstants make_constants(const describe::Model& model, const describe::Plan& plan, RankPosition rank) {
  ModelConstants constants;
  if (!model.is_shape()) return constants;
  constants.norm_epsilon = model.norm_epsilon;
  constants.norm_weight_offset = model.norm_weight_offset ? 1 : 0;
  if (model.scaled_embeddings) constants.embedding_scale = std::sqrt(static_cast<double>(model.hidden));
  if (model.rotary_fraction < 1) {
    constants.rotary_dims =
        static_cast<std::int64_t>(model.rotary_fraction * static_cast<double>(model.head_dim)) / 2 * 2;
  }
  constants.rotary = model.rotary;
  constants.window_rotary = model.window_rotary.value_or(model.rotary);
  constants.rotary_in_windows_only = model.rotary_in_windows_only;
  if (model.attention_scale_dim > 0) constants.attention_scale = 1 / std::sqrt(model.attention_scale_dim);
  constants.attention_soft_cap = model.attention_soft_cap;
  constants.logits_soft_cap = model.logits_soft_cap;
  constants.window = model.window;
  if (model.position == describe::Position::alibi) {
    constants.alibi_heads = model.heads;
    constants.first_head = rank.tensor_parallel * div_ceil(model.heads, plan.tensor_parallel);
  }
  return constants;
}

}  // namespace zeroplan::program
