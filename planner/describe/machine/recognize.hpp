#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/describe/machine/cluster.hpp"
#include "planner/found_machine.hpp"

// Which of the shipped descriptions stand for a machine that was found.
namespace zeroplan::describe {

// The device whose name or alias is what NVML calls the GPU, without the maker's words before it ("Tesla V100-SXM2-32GB" is
// v100-sxm2-32gb), and whose memory, where both are known, is the GPU's within 3 %: drivers differ by less, and parts with the
// same name by more. None for a GPU that is divided by MIG.
std::optional<std::string> device_preset_of(const FoundGpu& gpu);

// Where none is: of the devices with its compute capability the one whose memory is nearest; none where NVML tells neither, or
// there is no such device.
std::optional<std::string> nearest_device_preset(const FoundGpu& gpu);

// How the GPUs of a machine are linked with each other; none where NVML does not say enough, or there is one GPU only.
std::optional<Fabric> fabric_of(const FoundMachine& machine);

// Interfaces that a training's traffic may take (they are up, and 25 Gbit/s or faster), and what each carries; none where they
// are not alike, or where there is none.
struct FoundNetwork {
  std::int64_t nics = 0;
  std::optional<double> gbits_per_s;
};
FoundNetwork network_of(const FoundMachine& machine);

// The device that all GPUs are, where they are alike and recognized.
std::optional<std::string> device_preset_of(const FoundMachine& machine);

// The nodes that have this machine's devices, as many and linked so; those whose network and host memory are also this
// machine's where there are such. Empty: none, or the devices are not recognized.
std::vector<std::string> node_presets_of(const FoundMachine& machine);

}  // namespace zeroplan::describe
