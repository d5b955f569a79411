#include "planner/calibrate/gpu_profile.hpp"

#include <doctest/doctest.h>

#include <string>

#include "planner/describe/machine/cluster.hpp"
#include "reports/calibration_report.hpp"
#include "reports/writers.hpp"

using namespace zeroplan;
using describe::Device;

namespace {

// What a description says, read back from what calibrate writes of it.
Device written_and_read(const Device& device) {
  const reports::RunEnvironment environment;
  const reports::Report report = reports::calibration_report({"test", device, environment});
  const std::string text = reports::write(report, reports::Format::yaml);
  return describe::read_hardware_yaml(describe::parse_yaml(text, "written.yaml")).device;
}

void check_same(const std::optional<describe::Figure>& a, const std::optional<describe::Figure>& b) {
  REQUIRE(a.has_value() == b.has_value());
  if (!a) return;
  CHECK(a->value == doctest::Approx(b->value).epsilon(1e-3));
  CHECK(a->source == b->source);
  CHECK(a->note == b->note);
  CHECK(a->assumed == b->assumed);
}

}  // namespace

TEST_CASE("a description that is written is read as the same, for every shipped GPU") {
  for (const describe::HardwareName& preset : describe::preset_hardware_names()) {
    if (preset.kind != describe::HardwareName::Kind::device || preset.name == "cpu") continue;
    CAPTURE(preset.name);
    const Device before = describe::find_device(preset.name);
    const Device after = written_and_read(before);
    CHECK(after.name == before.name);
    CHECK(after.architecture == before.architecture);
    CHECK(after.capacity.usable_bytes() == before.capacity.usable_bytes());
    CHECK(after.capacity.basis() == before.capacity.basis());
    check_same(after.overheads.context_bytes, before.overheads.context_bytes);
    check_same(after.overheads.library_workspace_bytes, before.overheads.library_workspace_bytes);
    check_same(after.overheads.communicator_bytes, before.overheads.communicator_bytes);
    check_same(after.overheads.allocator_round_bytes, before.overheads.allocator_round_bytes);
    for (std::optional<describe::Figure> Device::*figure :
         {&Device::compute_capability, &Device::multiprocessors, &Device::peak_fp32_tflops,
          &Device::peak_tf32_tflops, &Device::peak_fp16_tflops, &Device::peak_bf16_tflops,
          &Device::peak_fp8_tflops, &Device::memory_gbytes_per_s, &Device::memory_measured_gbytes_per_s,
          &Device::nvlink_links, &Device::nvlink_gbytes_per_s, &Device::nccl_link_gbytes_per_s,
          &Device::pcie_gbytes_per_s, &Device::host_to_device_gbytes_per_s}) {
      check_same(after.*figure, before.*figure);
    }
    REQUIRE(after.attained_matmul.size() == before.attained_matmul.size());
    for (std::size_t i = 0; i < before.attained_matmul.size(); ++i) {
      const describe::AttainedMatmul& a = after.attained_matmul[i];
      const describe::AttainedMatmul& b = before.attained_matmul[i];
      CHECK(a.tflops == doctest::Approx(b.tflops).epsilon(1e-3));
      CHECK(a.tflops_high == doctest::Approx(b.tflops_high).epsilon(1e-3));
      CHECK(a.used == b.used);
      CHECK(a.fraction_of_peak.has_value() == b.fraction_of_peak.has_value());
    }
    REQUIRE(after.attained_attention.size() == before.attained_attention.size());
    for (std::size_t i = 0; i < before.attained_attention.size(); ++i) {
      CHECK(after.attained_attention[i].lengths == before.attained_attention[i].lengths);
      CHECK(after.attained_attention[i].used == before.attained_attention[i].used);
      CHECK(after.attained_attention[i].tflops.size() == before.attained_attention[i].tflops.size());
    }
    REQUIRE(after.attained_collectives.size() == before.attained_collectives.size());
    for (std::size_t i = 0; i < before.attained_collectives.size(); ++i) {
      CHECK(after.attained_collectives[i].devices == before.attained_collectives[i].devices);
      CHECK(after.attained_collectives[i].nodes == before.attained_collectives[i].nodes);
      CHECK(after.attained_collectives[i].first_bytes == before.attained_collectives[i].first_bytes);
    }
    CHECK(after.usual_node == before.usual_node);
  }
}

TEST_CASE(
    "a calibrated description: what the GPU showed is its own, peaks are the base's, and it says which") {
  const Device base = describe::find_device("h200");
  calibrate::GpuShown shown;
  shown.name = "NVIDIA H200";
  shown.nvml.name = "NVIDIA H200";
  shown.nvml.total_bytes = 143771 * kMiB;
  shown.nvml.reserved_bytes = 622 * kMiB;
  shown.driver = "580.1";
  shown.total_bytes = 139 * kGiB;
  const Device device = calibrate::gpu_description({base, true}, shown, "measured");
  CHECK(device.name == "calibrated-h200");
  CHECK(device.capacity.usable_bytes() == 139 * kGiB);
  CHECK(device.capacity.cuda_bytes->source == "measured");
  CHECK(device.peak_bf16_tflops->source == base.peak_bf16_tflops->source);
  CHECK(!device.peak_bf16_tflops->assumed);
  CHECK(!device.overheads.context_bytes);            // the probes will tell
  CHECK(!device.overheads.library_workspace_bytes);  // as well
  CHECK(device.overheads.allocator_round_bytes->value == 2 * kMiB);
  CHECK(device.usual_node == base.usual_node);

  const Device other = calibrate::gpu_description({base, false}, shown, "measured");
  CHECK(other.peak_bf16_tflops->assumed);
  CHECK(other.peak_bf16_tflops->note.starts_with("assumed: of h200"));

  program::GpuSamples clocks;
  clocks.count = 4;
  clocks.sm_clock_mhz = 1755;
  clocks.most_sm_clock_mhz = 1980;
  clocks.held_back = 1;
  clocks.with_reason[2] = 1;
  const std::string note = calibrate::gpu_note({base, true}, shown, clocks);
  CHECK(note.find("Peaks and rates of data sheets are those of h200.") != std::string::npos);
  CHECK(note.find("SM clock 1755 of 1980 MHz, the median of 4 samples") != std::string::npos);
  CHECK(note.find("held back in 25 %, power cap in 25 %") != std::string::npos);
  CHECK(calibrate::gpu_note({base, false}, shown, {})
            .find("the nearest part that is described, and assumed. "
                  "Clocks are not known.") != std::string::npos);
}
