#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "executor/machine/nvml.hpp"
#include "planner/program/measurement.hpp"

namespace zeroplan::executor {

// Looks at a GPU through NVML while something runs on it. A thread of its own does that, so that neither the GPU nor who
// issues to it waits. Without NVML it sees nothing, and says why.
class GpuWatch {
 public:
  static constexpr std::chrono::milliseconds kInterval{100};

  // `pci_address`: of the GPU, as sysfs spells it; empty: the device is none, and nothing is seen or missed.
  explicit GpuWatch(const std::string& pci_address, const std::string& library = kNvmlLibrary,
                    std::chrono::milliseconds interval = kInterval);
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  // Why it sees nothing, in a sentence without its full stop; empty where it sees the GPU or there is none.
  const std::string& problem() const { return problem_; }
  // The GPU as NVML found it when the watch was made, but for what changes; nothing where it sees none.
  const std::optional<FoundGpu>& gpu() const { return gpu_; }

  // Adds what NVML says now to what the device's runtime says.
  void add_memory(program::DeviceMemoryUse& use) const;

  // From begin() to end() it takes samples; end() takes one where the time was too short for any.
  void begin();
  program::GpuSamples end();

 private:
  void run();
  void take();

  std::unique_ptr<Nvml> nvml_;
  std::optional<FoundGpu> gpu_;
  std::string problem_;
  std::int64_t process_ = 0;  // the host's number of this one; 0: not known
  std::chrono::milliseconds interval_;
  std::vector<GpuNow> samples_;  // by the thread while there is one
  std::mutex mutex_;             // guards what follows
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace zeroplan::executor
