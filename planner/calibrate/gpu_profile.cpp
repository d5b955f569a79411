#include "planner/calibrate/gpu_profile.hpp"

#include <fmt/format.h>

#include <optional>

namespace zeroplan::calibrate {

using describe::Device;
using describe::Figure;

namespace {

Figure measured(Bytes bytes, const std::string& source) {
  return {static_cast<double>(bytes), source, {}, false};
}

void assume(std::optional<Figure>& figure, const Device& base) {
  if (!figure || figure->assumed) return;
  figure->assumed = true;
  figure->note = figure->note.empty() ? fmt::format("assumed: of {}", base.name)
                                      : fmt::format("assumed: of {}; {}", base.name, figure->note);
}

}  // namespace

Device gpu_description(const GpuBase& base, const GpuShown& shown, const std::string& source) {
  Device device = base.device;
  device.name = fmt::format("calibrated-{}", base.device.name);
  device.title = fmt::format("{}, {}", shown.nvml.name.value_or(shown.name), source);
  if (!base.is_the_part) {
    for (std::optional<Figure> Device::*figure :
         {&Device::multiprocessors, &Device::peak_fp32_tflops, &Device::peak_tf32_tflops,
          &Device::peak_fp16_tflops, &Device::peak_bf16_tflops, &Device::peak_fp8_tflops,
          &Device::memory_gbytes_per_s, &Device::nvlink_links, &Device::nvlink_gbytes_per_s,
          &Device::nccl_link_gbytes_per_s, &Device::pcie_gbytes_per_s}) {
      assume(device.*figure, base.device);
    }
  }
  device.capacity = {};
  if (shown.nvml.total_bytes) device.capacity.nvml_bytes = measured(*shown.nvml.total_bytes, source);
  if (shown.nvml.reserved_bytes) {
    device.capacity.driver_reserved_bytes = measured(*shown.nvml.reserved_bytes, source);
  }
  device.capacity.cuda_bytes = measured(shown.total_bytes, source);
  device.overheads.context_bytes.reset();
  device.overheads.library_workspace_bytes.reset();
  return device;
}

std::string gpu_note(const GpuBase& base, const GpuShown& shown, const program::GpuSamples& clocks) {
  std::string note = fmt::format(
      "Measured: capacity, context, workspace, copies, products, attention, kernels and collectives of {} "
      "({}). Peaks and "
      "rates of data sheets are those of {}",
      shown.nvml.name.value_or(shown.name),
      shown.driver.empty() ? "driver not known" : fmt::format("driver {}", shown.driver), base.device.name);
  note += base.is_the_part ? "." : ", the nearest part that is described, and assumed.";
  if (clocks.count == 0) return note + " Clocks are not known.";
  note += fmt::format(" SM clock {} of {} MHz, the median of {} samples", clocks.sm_clock_mhz,
                      clocks.most_sm_clock_mhz, clocks.count);
  constexpr double kPercents = 100;
  const auto share = [&](std::int64_t samples) {
    return kPercents * static_cast<double>(samples) / static_cast<double>(clocks.count);
  };
  note += fmt::format(", {:.0f} W; held back in {:.0f} %", clocks.power_watts, share(clocks.held_back));
  for (std::size_t i = 0; i < kClockReasons.size(); ++i) {
    if (const std::int64_t samples = clocks.with_reason.at(i); samples > 0) {
      note += fmt::format(", {} in {:.0f} %", kClockReasons.at(i).words, share(samples));
    }
  }
  return note + ".";
}

}  // namespace zeroplan::calibrate
