#pragma once

#include "planner/describe/document.hpp"
#include "planner/describe/plan.hpp"

namespace zeroplan::describe {

// A configuration of Hugging Face accelerate with `distributed_type: FSDP` as a plan. FULL_SHARD is stage 3,
// SHARD_GRAD_OP 2, NO_SHARD 0; fsdp_version 2 with fsdp_reshard_after_forward true is 3, false is 2.
// HYBRID_SHARD is planned as one of its replicas: stage 3 over the devices of one node; a note says what that
// leaves out. The file knows no model, batch or sequence length: `missing` names them. Throws
// ConfigurationError.
PlanFile read_fsdp_config(const Document& document);

}  // namespace zeroplan::describe
