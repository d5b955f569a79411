#include "planner/accuracy/modelled_run.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace zeroplan::accuracy {
namespace {

// The preset's own nodes where they are as large as the run's; else the device alone, spread over nodes.
describe::ResolvedPlan resolve(const Run& run, describe::PlanOptions options, const describe::Model& model,
                               const describe::Cluster& preset) {
  const std::int64_t gpus = *options.gpus;
  const std::int64_t per_node = run.gpus_per_node.value_or(8);
  if (preset.node && preset.node->devices == per_node) {
    return describe::resolve_plan(options, model, preset.name);
  }
  if (gpus > per_node) {
    if (gpus % per_node != 0) throw NotModelled{"GPUs are not a multiple of a node's"};
    options.nodes = gpus / per_node;
  }
  describe::ResolvedPlan resolved = describe::resolve_plan(options, model, preset.device->name);
  resolved.cluster.node = std::make_shared<const describe::Node>(plain_node(run, resolved.cluster, preset));
  return resolved;
}

// A preset that cannot be read is our own defect, not a property of the run.
describe::Cluster preset_of(const Run& run) {
  const std::string hardware = hardware_of(run);
  try {
    return describe::resolve_cluster(hardware, {}, {});
  } catch (const ConfigurationError& error) {
    throw std::logic_error(error.what());
  }
}

bool measures_something(const Run& run) {
  return run.memory || run.step_seconds || run.outcome == Outcome::out_of_memory;
}

}  // namespace

std::variant<ModelledRun, NotModelled> model_run(const Run& run) {
  if (!measures_something(run)) return NotModelled{"nothing measured: no memory, step time or OOM"};
  if (!run.not_scored.empty()) return NotModelled{run.not_scored};
  try {
    describe::PlanOptions options = plan_options_of(run);
    const describe::Cluster preset = preset_of(run);
    const describe::Model model = model_of(run);
    describe::ResolvedPlan resolved = resolve(run, std::move(options), model, preset);
    apply_network(run, resolved.cluster);
    return ModelledRun{model, std::move(resolved.plan), std::move(resolved.cluster),
                       run.gpu_memory_gb.has_value()};
  } catch (const NotModelled& reason) {
    return reason;
  } catch (const ConfigurationError& error) {
    return NotModelled{"refused by the planner: " + error.problems().front().text()};
  }
}

std::string gpu_label(const Run& run) {
  if (run.gpu_family.empty()) return "unknown";
  if (!run.gpu_memory_gb) return run.gpu_family;
  return fmt::format("{}-{:g}GB", run.gpu_family, *run.gpu_memory_gb);
}

}  // namespace zeroplan::accuracy
