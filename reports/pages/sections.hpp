#pragma once

#include <string>
#include <vector>

#include "reports/pages/plan_page.hpp"

// The parts of a page about a plan. Each is data under a key of zeroplan.report/1, and the blocks that show it; what a picture or a
// table says comes from the data.
namespace zeroplan::reports {

// memory.capacities: the memory of the device as its makers, NVML and CUDA count it, and what the plan may use.
// memory.stages: the peak by category at each stage of ZeRO, and of the changes that are suggested.
// memory.over_step: what is held from when to when; the highest of each short time.
Data memory_data(const PlanPage& page);
void add_memory(std::vector<Block>& blocks, const PlanPage& page, const Data& data);

// time.waterfall: from the time that the model's FLOPs take at the device's peak to the step.
// time.layer: one layer's forward and backward by stream.
// `result`: figures_data() of the plan.
Data time_data(const PlanPage& page, const Data& result);
void add_time(std::vector<Block>& blocks, const Data& data);

// what_if: rows of recomputation, GPUs and micro-batch.
Data what_if_data(const PlanPage& page);
void add_what_if(std::vector<Block>& blocks, const Data& data);

// owned: what each rank of a data-parallel group holds of the model states, by unit of parameters.
Data owned_data(const PlanPage& page);
void add_owned(std::vector<Block>& blocks, const Data& data);

}  // namespace zeroplan::reports
