#include "reports/reserved_memory.hpp"

namespace zeroplan::reports {

ReservedBytes reserved_at_peak(const predict::Prediction& prediction) {
  ReservedBytes reserved;
  const program::StepProgram& program = prediction.program();
  for (const predict::LiveBuffer& live : predict::live_at_peak(program, prediction.memory())) {
    const program::Buffer& buffer = program.buffers[live.buffer];
    if (buffer.reserved) reserved.device[static_cast<std::size_t>(buffer.category)] += live.bytes;
  }
  for (const program::Buffer& buffer : program.buffers) {
    if (!buffer.reserved || buffer.space != program::Space::host) continue;
    reserved.host[static_cast<std::size_t>(buffer.category)] += buffer.instances * buffer.bytes;
  }
  return reserved;
}

}  // namespace zeroplan::reports
