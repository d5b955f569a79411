#include "cli/calibrate_gpu.hpp"

#include <fmt/format.h>

#include <memory>

#include "executor/modules.hpp"
#include "planner/describe/machine/recognize.hpp"
#include "planner/error.hpp"

namespace zeroplan::cli {

namespace {

using executor::Device;

std::unique_ptr<Device> open(int index) {
  return executor::make_device("cuda", {.threads = 1, .index = index});
}

}  // namespace

CalibratedGpu::CalibratedGpu(int index, const std::string& hardware) : index_(index) {
  for (std::int64_t i = 0; i < nvml_.gpus(); ++i) used_before_.push_back(nvml_.used_bytes(i));
  const std::unique_ptr<Device> device = open(index);
  watch_.emplace(device->pci_address());
  if (watch_->gpu()) shown_.nvml = *watch_->gpu();
  shown_.driver = nvml_.driver().version.value_or("");
  shown_.total_bytes = device->memory_use().total;
  shown_.name = shown_.nvml.name.value_or(device->name());
  if (!hardware.empty()) {
    base_ = describe::resolve_cluster(hardware, std::nullopt, std::nullopt).device;
    if (base_->capacity.from_host_memory) {
      throw ConfigurationError(
          Problem{"--hw", 0, "",
                  fmt::format("found {}, expected a GPU's description for {}", hardware, shown_.name)});
    }
    return;
  }
  std::optional<std::string> preset = describe::device_preset_of(shown_.nvml);
  if (!preset) {
    preset = describe::nearest_device_preset(shown_.nvml);
    is_the_part_ = false;
  }
  if (!preset) {
    const std::string why = watch_->problem().empty()
                                ? fmt::format("no shipped description is of {}", shown_.name)
                                : watch_->problem();
    throw ConfigurationError(
        Problem{"--hw", 0, "",
                fmt::format("{}; expected a device preset or file whose peaks and links are those of {} "
                            "(zeroplan hw list)",
                            why, shown_.name)});
  }
  base_ = describe::find_device(*preset);
}

describe::Device CalibratedGpu::begin(const std::string& source) {
  watch_->begin();
  return calibrate::gpu_description({base_, is_the_part_}, shown_, source);
}

void CalibratedGpu::end(describe::Device& device, const std::string& source) {
  const program::GpuSamples clocks = watch_->end();
  const std::unique_ptr<Device> opened = open(index_);
  program::DeviceMemoryUse use = opened->memory_use();
  watch_->add_memory(use);
  Bytes context = use.used;
  std::string how = "what CUDA counts as used, others' included";
  if (use.of_process > 0) {
    context = use.of_process;
    how = "what NVML counts for this process";
  } else if (watch_->gpu()) {
    const Bytes before = used_before_.at(static_cast<std::size_t>(watch_->gpu()->index));
    if (use.nvml_used > before) {
      context = use.nvml_used - before;
      how = "what NVML counts for the device, less what it did before";
    }
  }
  device.overheads.context_bytes = describe::Figure{static_cast<double>(context), source, how, false};
  device.note = calibrate::gpu_note({base_, is_the_part_}, shown_, clocks);
}

}  // namespace zeroplan::cli
