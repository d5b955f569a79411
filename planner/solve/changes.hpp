#pragma once

#include <string>
#include <vector>

#include "planner/describe/plan/plan.hpp"

namespace zeroplan::solve {

// One change of a plan that takes less memory on each device.
struct Change {
  describe::Plan plan;
  std::string what;  // "ZeRO stage 2"
  std::string cost;  // "no more traffic"
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

// The changes of one kind that can be made to `plan`, smallest first. Whether they are legal and help is for
// the caller to try.
std::vector<Change> changes(ChangeKind kind, const describe::Plan& plan, const describe::Cluster& cluster);

// Whether a change of the second kind takes the place of one of the first: a higher ZeRO stage, P_a+cpu for
// P_a, offload of everything for offload of the optimizer.
bool replaces(ChangeKind later, ChangeKind earlier);

// `plan` with another tensor-parallel degree on the same devices, and the same global batch when that is
// possible. Requires devices % degree == 0.
describe::Plan with_tensor_parallel(describe::Plan plan, std::int64_t degree);

// The options that ask for `plan` where the user's own, `options`, resolved to `start`. What differs is said;
// what the user left open and is the same in both stays open.
describe::PlanOptions options_for(const describe::Plan& plan, const describe::Plan& start,
                                  describe::PlanOptions options);

// `options`, which resolved to `plan`, with what no option of the command line can say in words that one can:
// a bucket in elements, or from the hidden size, in bytes. They resolve to the same plan.
describe::PlanOptions as_on_command_line(describe::PlanOptions options, const describe::Plan& plan);

}  // namespace zeroplan::solve
