#include "tests/support/plans.hpp"

#include <fmt/format.h>

namespace zeroplan::test {

using namespace describe;

Plan plain_plan() {
  Plan plan;
  plan.sequence = 16;
  plan.micro_batch = 2;
  plan.optimizer = find_optimizer("adam");
  plan.engine = find_engine("native");
  plan.bucket_bytes = plan.engine->bucket_bytes;
  return plan;
}

Model small_gpt() { return read_model_spelling("layers=5,hidden=36,heads=4,vocab=101,ffn=140"); }

Model small_llama() {
  return read_model_spelling("layers=5,hidden=40,heads=4,kv_heads=4,head_dim=12,vocab=97,ffn=52,gated=true");
}

void for_each_plan(const Model& model, const std::function<void(const std::string&, const Plan&)>& visit) {
  struct Activations {
    Recompute recompute;
    std::int64_t interval;
    bool partition, offload;
    AttentionKernel attention;
    bool dropout;
  };
  const Activations kinds[] = {
      {Recompute::none, 1, false, false, AttentionKernel::flash, false},
      {Recompute::none, 1, false, false, AttentionKernel::materialized_fp32, true},
      {Recompute::selective, 1, false, false, AttentionKernel::materialized, true},
      {Recompute::full, 1, false, false, AttentionKernel::flash, false},
      {Recompute::full, 2, false, false, AttentionKernel::materialized, true},
      {Recompute::full, 1, true, false, AttentionKernel::flash, false},
      {Recompute::full, 3, true, true, AttentionKernel::flash, true},
  };
  struct Ranks {
    std::int64_t dp = 1, shard = 0, secondary_shard = 0;
  };
  const Ranks ranks[] = {{1}, {2}, {3}, {4}, {4, 2}, {4, 0, 2}};
  for (int stage = 0; stage <= 3; ++stage) {
    for (const auto& [dp, shard, secondary_shard] : ranks) {
      for (const std::int64_t tp : {1, 2, 4}) {
        for (const Offload offload : {Offload::none, Offload::optimizer, Offload::all}) {
          for (const Activations& kind : kinds) {
            Plan plan = plain_plan();
            plan.zero_stage = stage;
            plan.data_parallel = dp;
            plan.shard = shard;
            plan.secondary_shard = secondary_shard;
            plan.tensor_parallel = tp;
            plan.offload = offload;
            plan.recompute = kind.recompute;
            plan.checkpoint_interval = kind.interval;
            plan.partition_activations = kind.partition;
            plan.offload_activations = kind.offload;
            plan.attention = kind.attention;
            plan.dropout = kind.dropout;
            plan.precision = dp % 2 == 0 ? Precision::fp16 : Precision::fp32;
            plan.gradient_accumulation = dp == 3 ? 3 : shard > 0 ? 2 : 1;
            plan.constant_buffers = tp != 2;
            if (tp == 4) plan.bucket_bytes = 512;
            Problems problems;
            check_plan(plan, model, problems);
            if (!problems.empty()) continue;
            visit(fmt::format("zero {} dp {} shard {}/{} tp {} offload {} recompute {}/{} pa {} pa+cpu {}",
                              stage, dp, shard, secondary_shard, tp, name_of(offload),
                              name_of(kind.recompute), kind.interval, kind.partition, kind.offload),
                  plan);
          }
        }
      }
    }
  }
}

}  // namespace zeroplan::test
