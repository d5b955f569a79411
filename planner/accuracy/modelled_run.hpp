#pragma once

#include <string>
#include <variant>

#include "planner/accuracy/run.hpp"
#include "planner/describe/machine/cluster.hpp"
#include "planner/describe/model/model.hpp"
#include "planner/describe/plan/plan.hpp"

namespace zeroplan::accuracy {

// A run as the planner understands it.
struct ModelledRun {
  describe::Model model;
  describe::Plan plan;
  describe::Cluster cluster;
  bool memory_known = true;  // the size of the GPU's memory: without it there is no verdict
};

// Why the planner has nothing to say about a run: short, and the same for all runs that share it, so that
// reasons can be counted.
struct NotModelled {
  std::string reason;
};

// The plan that the columns of a run say, and what is assumed where they say nothing: docs/accuracy.md.
std::variant<ModelledRun, NotModelled> model_run(const Run& run);

// The parts, for model_run and its tests. Each throws NotModelled.
describe::Model model_of(const Run& run);
describe::PlanOptions plan_options_of(const Run& run);
std::string hardware_of(const Run& run);  // a preset's name
// A node that is of another size than the preset's: the GPU's own links, wired as in the preset.
describe::Node plain_node(const Run& run, const describe::Cluster& cluster, const describe::Cluster& preset);
// Puts what the run says of its network over what the preset says.
void apply_network(const Run& run, describe::Cluster& cluster);

// "A100-80GB"; "unknown" where no GPU is stated.
std::string gpu_label(const Run& run);

}  // namespace zeroplan::accuracy
