#pragma once

#include "planner/describe/plan/plan.hpp"
#include "planner/describe/text/document.hpp"

namespace zeroplan::describe {

// A file that `accelerate config` writes, as a plan. By distributed_type:
//   FSDP       FULL_SHARD is stage 3, SHARD_GRAD_OP 2, NO_SHARD 0; fsdp_version 2 with fsdp_reshard_after_forward
//              true is 3, false is 2. HYBRID_SHARD is stage 3 (HYBRID_SHARD_ZERO2 2) over the devices of one node, with
//              replicas across nodes. The engine is fsdp2.
//   DEEPSPEED  zero_stage (default 2), the offload devices and gradient_accumulation_steps of deepspeed_config; a
//              deepspeed_config_file is refused, because the settings stand there. The engine is deepspeed.
//   MULTI_GPU, NO  plain data parallelism; the engine is pytorch.
// The file knows no model, batch or sequence length: `missing` names them. What becomes of each key stands in
// accelerate_keys.cpp. Throws ConfigurationError.
PlanFile read_accelerate_config(const Document& document);

}  // namespace zeroplan::describe
