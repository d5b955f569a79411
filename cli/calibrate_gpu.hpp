#pragma once

#include <optional>
#include <string>
#include <vector>

#include "executor/machine/gpu_watch.hpp"
#include "executor/machine/nvml.hpp"
#include "planner/calibrate/gpu_profile.hpp"
#include "planner/describe/machine/cluster.hpp"

namespace zeroplan::cli {

// What calibrate does of a GPU beside running probes: which part it is, what it takes of its memory before the first buffer,
// and its clocks meanwhile. Made before anything else opens the GPU.
class CalibratedGpu {
 public:
  // `index`: as CUDA numbers it; `hardware`: what --hw names, or empty. Throws NotPossible where there is no such GPU, and
  // ConfigurationError where nothing says which description its peaks are to be taken from.
  CalibratedGpu(int index, const std::string& hardware);

  // "NVIDIA H200".
  const std::string& name() const { return shown_.name; }

  // The description to add measurements to. From here on the GPU's clocks are watched.
  describe::Device begin(const std::string& source);
  // Once all probes have run, and with them all kernels been loaded: adds what the context takes, and what is to be known.
  void end(describe::Device& device, const std::string& source);

 private:
  int index_;
  executor::Nvml nvml_;
  std::vector<Bytes> used_before_;  // by NVML's index
  std::optional<executor::GpuWatch> watch_;
  calibrate::GpuShown shown_;
  Described<describe::Device> base_;
  bool is_the_part_ = true;
};

}  // namespace zeroplan::cli
