#include "planner/solve/one_rank.hpp"

#include "planner/describe/plan/engine.hpp"

namespace zeroplan::solve {

using describe::Precision;

describe::Plan one_rank_plan(const describe::Plan& plan) {
  describe::Plan alone = plan;
  alone.gradient_accumulation = plan.gradient_accumulation * plan.data_parallel;
  alone.data_parallel = 1;
  alone.tensor_parallel = 1;
  alone.zero_stage = 0;
  alone.shard = 0;
  alone.secondary_shard = 0;
  alone.offload = describe::Offload::none;
  alone.partition_activations = false;
  alone.offload_activations = false;
  alone.contiguous_memory = true;
  alone.engine = describe::find_engine("native");
  return alone;
}

RoundingTolerance one_rank_tolerance(const describe::Model& model, const describe::Plan& plan) {
  const bool same_order = plan.tensor_parallel == 1 && plan.shard == 0 &&
                          (plan.data_parallel == 1 || plan.gradient_accumulation == 1);
  const bool same_parts = plan.engine->tied_gradient_apart || !model.tied_embeddings;
  switch (plan.precision) {
    case Precision::fp32:
      return same_order && same_parts ? RoundingTolerance{} : RoundingTolerance{.loss = 1e-4, .norm = 1e-3};
    case Precision::fp16:
      return {.loss = 5e-3, .norm = 5e-2};
    case Precision::bf16:
      break;
  }
  return {.loss = 2e-2, .norm = 2e-1};
}

}  // namespace zeroplan::solve
