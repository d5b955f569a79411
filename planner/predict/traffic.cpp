#include "planner/predict/traffic.hpp"

#include "planner/predict/repetition.hpp"

namespace zeroplan::predict {

namespace {

using program::GroupKind;
using program::Instruction;
using program::Op;

TrafficEntry& entry_of(std::vector<TrafficEntry>& entries, GroupKind group, Op collective,
                       program::Phase phase) {
  for (TrafficEntry& entry : entries) {
    if (entry.group == group && entry.collective == collective && entry.phase == phase) return entry;
  }
  TrafficEntry& entry = entries.emplace_back();
  entry.group = group;
  entry.collective = collective;
  entry.phase = phase;
  return entry;
}

}  // namespace

double Traffic::sent_bytes(GroupKind family) const {
  double sum = 0;
  for (const TrafficEntry& entry : entries) sum += family_of(entry.group) == family ? entry.sent_bytes : 0;
  return sum;
}

double Traffic::data_parallel_psi(double parameters_of_rank) const {
  double elements = 0;
  for (const TrafficEntry& entry : entries) {
    if (family_of(entry.group) == GroupKind::data_parallel)
      elements += program::row_of(entry.collective).ring.passes * entry.elements;
  }
  return elements / parameters_of_rank;
}

Traffic read_traffic(const program::StepProgram& program) {
  Traffic traffic;
  traffic.entries.reserve(8);
  for_each_repeated(program, [&](const Instruction& instruction, program::Phase phase, double times) {
    if (program::is_host_copy(instruction.op)) {
      const program::Buffer& source = program.buffers[instruction.operands[0].buffer];
      const double bytes =
          times * static_cast<double>(instruction.dims[0]) * static_cast<double>(bytes_of(source.type));
      (program::class_of(instruction.op) == program::Class::to_device ? traffic.to_device_bytes
                                                                      : traffic.to_host_bytes) += bytes;
      return;
    }
    if (instruction.group == program::kNoGroup) return;
    const program::Buffer& whole = whole_buffer(program, instruction);
    const program::Group& group = program.group_of(instruction);
    const double n = static_cast<double>(group.size);
    const double elements = times * static_cast<double>(instruction.dims[0]);
    const double bytes = elements * static_cast<double>(bytes_of(whole.type));
    TrafficEntry& entry = entry_of(traffic.entries, group.kind, instruction.op, phase);
    entry.calls += times;
    entry.elements += elements;
    entry.bytes += bytes;
    entry.sent_bytes += program::sent_over_ring(instruction.op, bytes, n);
  });
  return traffic;
}

}  // namespace zeroplan::predict
