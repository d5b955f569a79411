#pragma once

#include <string>

#include "planner/describe/machine/cluster.hpp"
#include "planner/found_machine.hpp"
#include "planner/program/measurement.hpp"

// The description of a GPU that was measured: what a shipped one says of the part, and what this GPU showed.
namespace zeroplan::calibrate {

// What a GPU showed beside the probes.
struct GpuShown {
  std::string name;       // as the driver calls it
  FoundGpu nvml;          // empty where NVML is not there
  std::string driver;     // its version; empty: not known
  Bytes total_bytes = 0;  // that a program of CUDA sees
};

// Where the figures of a calibrated description come from.
struct GpuBase {
  const describe::Device& device;  // outlives this
  bool is_the_part = true;         // else the nearest that is described
};

// The base with its name and title changed, the capacity as it was shown, and without the figures that are measured anew. `source`: of what was measured. Peaks and rates of data sheets stay the base's; where it is of another part they
// are marked as assumed.
describe::Device gpu_description(const GpuBase& base, const GpuShown& shown, const std::string& source);

// What of it is whose, for people and for the description's note.
std::string gpu_note(const GpuBase& base, const GpuShown& shown, const program::GpuSamples& clocks);

}  // namespace zeroplan::calibrate
