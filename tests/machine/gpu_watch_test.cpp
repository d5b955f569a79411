#include "executor/machine/gpu_watch.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>

#include "tests/support/fake_nvml.hpp"

using namespace zeroplan;
using executor::GpuWatch;
using test::FakeNvml;
using test::kNewNvml;
using test::kOldNvml;

namespace {

constexpr std::chrono::milliseconds kOften{1};

program::GpuSamples samples_of(GpuWatch& watch) {
  watch.begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return watch.end();
}

}  // namespace

TEST_CASE("GPU watch: clocks, power and why the clocks are held back, in every sample of a busy GPU") {
  const FakeNvml fake("busy");
  GpuWatch watch("0000:1c:00.0", kNewNvml, kOften);
  CHECK(watch.problem().empty());
  REQUIRE(watch.gpu());
  CHECK(watch.gpu()->index == 2);
  const program::GpuSamples samples = samples_of(watch);
  CHECK(samples.count > 1);
  CHECK(samples.interval_seconds == 0.001);
  CHECK(samples.sm_clock_mhz == 1755);
  CHECK(samples.lowest_sm_clock_mhz == 1755);
  CHECK(samples.most_sm_clock_mhz == 1980);
  CHECK(samples.memory_clock_mhz == 3201);
  CHECK(samples.power_watts == doctest::Approx(690));
  CHECK(samples.highest_power_watts == 690);
  CHECK(samples.power_limit_watts == 700);
  CHECK(samples.temperature_celsius == 64);
  CHECK(samples.held_back == samples.count);
  for (std::size_t i = 0; i < kClockReasons.size(); ++i) {
    CHECK(samples.with_reason.at(i) == (kClockReasons.at(i).words == "power cap" ? samples.count : 0));
  }
  CHECK(watch.end().count == 0);  // nothing is watched any more
}

TEST_CASE(
    "GPU watch: an idle GPU is not held back, and a watch that is too short for a sample takes one at its "
    "end") {
  const FakeNvml fake("h200");
  GpuWatch watch("0000:1a:00.0", kNewNvml, std::chrono::hours(1));
  watch.begin();
  const program::GpuSamples samples = watch.end();
  CHECK(samples.count == 1);
  CHECK(samples.sm_clock_mhz == 345);
  CHECK(samples.held_back == 0);
  CHECK(samples.with_reason.at(0) == 1);
}

TEST_CASE("GPU watch: reasons without a name hold clocks back too") {
  const FakeNvml fake("throttled");
  GpuWatch watch("0000:1b:00.0", kNewNvml, kOften);
  const program::GpuSamples samples = samples_of(watch);
  CHECK(samples.held_back == samples.count);
}

TEST_CASE("GPU watch: memory of the device by whoever, and of this process where its number is the host's") {
  const FakeNvml old("v100");
  program::DeviceMemoryUse use{16 * kGiB, 5 * kMiB};
  GpuWatch("0000:1a:00.0", kNewNvml).add_memory(use);
  CHECK(use.nvml_used == 4 * kMiB);
  CHECK(use.of_process == 0);
  CHECK(use.used == 5 * kMiB);
  const FakeNvml fake("busy");
  GpuWatch("0000:1a:00.0", kNewNvml).add_memory(use);
  const bool of_host = std::filesystem::read_symlink("/proc/self/ns/pid") == "pid:[4026531836]";
  CHECK(use.of_process == (of_host ? 612 * kMiB : 0));
  const executor::Nvml nvml(kNewNvml);
  CHECK(nvml.used_by_process(0, ::getpid()) == 612 * kMiB);
  CHECK(nvml.used_by_process(0, 1) == 0);  // listed, and not told
  CHECK(nvml.used_by_process(0, 2) == 0);
}

TEST_CASE("GPU watch: where NVML is not there, or has no such GPU, nothing is seen and it says why") {
  GpuWatch none("0000:1a:00.0", "/nowhere/libnvidia-ml.so.1");
  CHECK(none.problem().find("there is no NVIDIA driver here") == 0);
  CHECK(samples_of(none).count == 0);
  program::DeviceMemoryUse use{16 * kGiB, 5 * kMiB};
  none.add_memory(use);
  CHECK(use.nvml_used == 0);
  const FakeNvml fake("one-h200");
  CHECK(GpuWatch("0000:1b:00.0", kNewNvml).problem().find("no GPU at 0000:1b:00.0") != std::string::npos);
  CHECK(GpuWatch("", kNewNvml).problem().empty());  // the device is none
  // A library without the functions: clocks are there, processes are not.
  const FakeNvml busy("busy");
  GpuWatch watch("0000:1a:00.0", kOldNvml, kOften);
  CHECK(samples_of(watch).held_back > 0);
  program::DeviceMemoryUse of_old{};
  watch.add_memory(of_old);
  CHECK(of_old.of_process == 0);
}
