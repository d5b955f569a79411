#include "planner/predict/step_costs.hpp"

#include <cmath>

#include "planner/describe/machine/device_architecture.hpp"
#include "planner/predict/links.hpp"
#include "planner/predict/stragglers.hpp"
#include "planner/predict/traffic.hpp"

namespace zeroplan::predict {
namespace {

using program::Instruction;
using program::Phase;
using program::StepProgram;

constexpr double kGiga = 1e9;

double moved_bytes_of(const Instruction& instruction, const program::Buffer& buffer) {
  return static_cast<double>(instruction.dims[0]) * static_cast<double>(program::bytes_of(buffer.type));
}

double host_link_bytes_per_s(const describe::Device& device) {
  const auto& link = device.host_to_device_gbytes_per_s;
  const auto& bus = device.pcie_gbytes_per_s;
  return kGiga * (link ? link->value : bus ? bus->value : 0);
}

// Bytes per second that a fused optimizer moves on the processors of a node for each of its ranks.
double host_optimizer_bytes_per_s(const describe::Cluster& cluster) {
  const auto& known = cluster.node ? cluster.node->host_optimizer_gbytes_per_s : std::nullopt;
  const auto& figure = known ? known : describe::host_architecture().host_optimizer_gbytes_per_s;
  return figure ? kGiga * figure->value / static_cast<double>(cluster.devices_per_node) : 0;
}

}  // namespace

std::optional<StepCosts> step_costs(const StepProgram& program, const describe::Cluster& cluster,
                                    const KernelRates& rates) {
  if (!(rates.matmul_flops_per_s > 0) || !(rates.memory_bytes_per_s > 0)) return std::nullopt;
  std::array<Placement, program::kMostGroups> placements;
  for (std::size_t i = 0; i < program.groups.size(); ++i) {
    placements[i] = place_group(program.groups[i], program.ranks, cluster);
  }
  const double host_link = host_link_bytes_per_s(cluster.device);
  const double host_bytes_per_s = host_optimizer_bytes_per_s(cluster);
  StepCosts costs;
  costs.kernel_gap_s = rates.kernel_gap_s;
  costs.host_issue_s = rates.host_issue_s;
  costs.slowdown = rates.slowdown;
  costs.one_stream = rates.one_stream;
  costs.seconds.resize(program.code.size());
  costs.launches.resize(program.code.size());
  Phase phase = Phase::setup;
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    const Instruction& instruction = program.code[i];
    if (instruction.op == program::Op::phase) phase = static_cast<Phase>(instruction.dims[0]);
    if (!program::takes_time(instruction.op)) continue;
    const ExposedPart part = part_of(program, instruction, program::Phase::forward);
    switch (part) {
      case ExposedPart::data_parallel:
      case ExposedPart::tensor_parallel: {
        const program::Buffer& whole = whole_buffer(program, instruction);
        costs.seconds[i] = collective_seconds(cluster, placements[instruction.group], instruction.op,
                                              moved_bytes_of(instruction, whole), whole.type);
        if (part == ExposedPart::data_parallel && phase != Phase::step) costs.launches[i] = 1;
        break;
      }
      case ExposedPart::host_copies:
        if (phase != Phase::step) costs.launches[i] = 1;
        if (rates.measured != nullptr) {
          costs.seconds[i] = kernel_seconds(rates, program, instruction);
          break;
        }
        if (host_link > 0) {
          const program::Buffer& source = program.buffers[instruction.operands[0].buffer];
          costs.seconds[i] = moved_bytes_of(instruction, source) / host_link;
        }
        break;
      default:
        // Of a device with a host beside it, rates that were measured are those of the device.
        if (instruction.stream == program::Stream::host && (rates.measured == nullptr || !rates.one_stream)) {
          costs.seconds[i] = moved_bytes(program, instruction) / host_bytes_per_s;
          if (phase != Phase::step) costs.launches[i] = 1;
          break;
        }
        costs.seconds[i] = kernel_seconds(rates, program, instruction);
        // Optimizers update many tensors with one kernel.
        if (phase != Phase::step) costs.launches[i] = kernel_launches(rates, instruction);
    }
  }
  if (rates.measured != nullptr && rates.measured->skew() > 0) {
    costs.waiting = waiting_for_others(program, rates.measured->skew(), costs.seconds);
    for (std::size_t i = 0; i < costs.seconds.size(); ++i) costs.seconds[i] += costs.waiting[i];
  }
  return costs;
}

}  // namespace zeroplan::predict
