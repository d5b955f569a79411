#include "planner/predict/schedule.hpp"

#include <cmath>

#include "planner/predict/links.hpp"

namespace zeroplan::predict {
namespace {

using program::Group;
using program::Instruction;
using program::Op;
using program::StepProgram;

constexpr double kGiga = 1e9;

double bytes_of_operand(const StepProgram& program, const Instruction& instruction, std::size_t operand) {
  const program::Buffer& buffer = program.buffers[instruction.operands[operand].buffer];
  return static_cast<double>(instruction.dims[0]) * static_cast<double>(program::bytes_of(buffer.type));
}

double host_link_bytes_per_s(const describe::Device& device) {
  const auto& link = device.host_to_device_gbytes_per_s;
  const auto& bus = device.pcie_gbytes_per_s;
  return kGiga * (link ? link->value : bus ? bus->value : 0);
}

bool is_structure(Op op) { return op <= Op::load_batch; }

}  // namespace

std::optional<StepCosts> step_costs(const StepProgram& program, const describe::Cluster& cluster,
                                    const KernelRates& rates) {
  if (!(rates.matmul_flops_per_s > 0) || !(rates.memory_bytes_per_s > 0)) return std::nullopt;
  const Placement data_parallel = place_group(program, Group::data_parallel, cluster);
  const Placement tensor_parallel = place_group(program, Group::tensor_parallel, cluster);
  const double host_link = host_link_bytes_per_s(cluster.device);
  StepCosts costs;
  costs.kernel_gap_s = rates.kernel_gap_s;
  costs.host_issue_s = rates.host_issue_s;
  costs.slowdown = rates.slowdown;
  costs.one_stream = rates.one_stream;
  costs.seconds.resize(program.code.size());
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    const Instruction& instruction = program.code[i];
    if (is_structure(instruction.op)) continue;
    switch (part_of(instruction, program::Phase::forward)) {
      case ExposedPart::data_parallel:
      case ExposedPart::tensor_parallel: {
        const bool is_data = instruction.group == Group::data_parallel;
        const double bytes = bytes_of_operand(program, instruction, instruction.op == Op::all_gather ? 1 : 0);
        costs.seconds[i] =
            collective_seconds(cluster, is_data ? data_parallel : tensor_parallel, instruction.op, bytes);
        break;
      }
      case ExposedPart::host_copies:
        costs.seconds[i] = host_link > 0 ? bytes_of_operand(program, instruction, 0) / host_link : 0;
        break;
      default:
        costs.seconds[i] = kernel_seconds(rates, program, instruction);
    }
  }
  return costs;
}

}  // namespace zeroplan::predict
