#include "executor/machine/machine.hpp"

#include "executor/machine/host.hpp"
#include "executor/machine/network.hpp"

namespace zeroplan::executor {

FoundMachine find_machine(const MachinePlaces& places) {
  FoundMachine machine;
  machine.host = read_host(places.root);
  const Nvml nvml(places.nvml);
  machine.driver = nvml.driver();
  for (std::int64_t i = 0; i < nvml.gpus(); ++i) machine.gpus.push_back(nvml.gpu(i));
  machine.paths = nvml.paths();
  machine.nics = read_nics(machine.gpus, places.root);
  return machine;
}

}  // namespace zeroplan::executor
