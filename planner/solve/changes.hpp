#pragma once

#include <string>
#include <vector>

#include "planner/describe/plan.hpp"

namespace zeroplan::solve {

// One change of a plan that takes less memory on each device, as options of the user.
struct Change {
  describe::PlanOptions options;
  std::string what;
  std::string cost;
};

// The kinds of change, cheapest first: memory that is only duplicated is given up before more is computed,
// that before more is moved, and that before more devices are asked for.
enum class ChangeKind {
  zero_stage_1_or_2,      // the same traffic (ZeRO, arXiv 1910.02054, Section 7.2.1)
  smaller_micro_batch,    // the same global batch in more passes
  full_recompute,         // one more forward: a third more compute
  zero_stage_3,           // 1.5 times the traffic (Section 7.2.2)
  tensor_parallel,        // activations are all-reduced in every layer
  partition_activations,  // an all-gather of each checkpoint (Section 8)
  offload_activations,    // checkpoints over PCIe
  offload_optimizer,
  offload_all,
  more_devices,
};
inline constexpr int kChangeKinds = 10;

// The changes of one kind that can be made to `options`, which resolved to `resolved`: smallest first.
// Whether they are legal and help is for the caller to try.
std::vector<Change> changes(ChangeKind kind, const describe::PlanOptions& options,
                            const describe::ResolvedPlan& resolved);

// The user's options with the number of devices fixed at what they resolved to and dp left to be derived, so
// that a change of tp keeps the devices.
describe::PlanOptions with_fixed_devices(describe::PlanOptions options,
                                         const describe::ResolvedPlan& resolved);

// `options` with another tensor-parallel degree on the same devices and the same global batch, when that is
// possible.
describe::PlanOptions with_tensor_parallel(describe::PlanOptions options,
                                           const describe::ResolvedPlan& resolved, std::int64_t degree);

}  // namespace zeroplan::solve
