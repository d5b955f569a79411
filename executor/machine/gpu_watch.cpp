#include "executor/machine/gpu_watch.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace zeroplan::executor {

namespace {

constexpr std::size_t kMostSamples = 4096;

// The number of this process on its host: where it is in the first namespace of process numbers, whose number is the
// same in every kernel (PROC_PID_INIT_INO of linux/proc_ns.h). Else 0.
std::int64_t number_on_host() {
  std::error_code error;
  const std::filesystem::path name = std::filesystem::read_symlink("/proc/self/ns/pid", error);
  return !error && name == "pid:[4026531836]" ? static_cast<std::int64_t>(::getpid()) : 0;
}

// Of the samples in which it is known; `Number` of none.
template <class Number>
std::vector<Number> known(const std::vector<GpuNow>& samples, std::optional<Number> GpuNow::*figure) {
  std::vector<Number> values;
  for (const GpuNow& sample : samples) {
    if (sample.*figure) values.push_back(*(sample.*figure));
  }
  std::sort(values.begin(), values.end());
  return values;
}

std::int64_t middle(const std::vector<std::int64_t>& sorted) {
  return sorted.empty() ? 0 : sorted[sorted.size() / 2];
}

}  // namespace

GpuWatch::GpuWatch(const std::string& pci_address, const std::string& library,
                   std::chrono::milliseconds interval)
    : interval_(interval) {
  if (pci_address.empty()) return;
  nvml_ = std::make_unique<Nvml>(library);
  if (!nvml_->driver().works) {
    problem_ = nvml_->driver().problem;
    return;
  }
  const std::optional<std::int64_t> index = nvml_->index_at(pci_address);
  if (!index) {
    problem_ = fmt::format("NVIDIA's management library has no GPU at {}", pci_address);
    return;
  }
  gpu_ = nvml_->gpu(*index);
  process_ = number_on_host();
}

GpuWatch::~GpuWatch() { (void)end(); }

void GpuWatch::add_memory(program::DeviceMemoryUse& use) const {
  if (!gpu_) return;
  use.nvml_used = nvml_->used_bytes(gpu_->index);
  if (process_ > 0) use.of_process = nvml_->used_by_process(gpu_->index, process_);
}

void GpuWatch::begin() {
  if (!gpu_ || thread_.joinable()) return;
  samples_.clear();
  ended_ = false;
  thread_ = std::thread([this] { run(); });
}

void GpuWatch::run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, interval_, [this] { return ended_; })) take();
}

void GpuWatch::take() {
  samples_.push_back(nvml_->now(gpu_->index));
  if (samples_.size() < kMostSamples) return;
  // Of a long run as many samples are kept, further apart.
  std::size_t kept = 0;
  for (std::size_t i = 0; i < samples_.size(); i += 2) samples_[kept++] = samples_[i];
  samples_.resize(kept);
  interval_ *= 2;
}

program::GpuSamples GpuWatch::end() {
  program::GpuSamples result;
  if (!thread_.joinable()) return result;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (samples_.empty()) take();
  result.count = static_cast<std::int64_t>(samples_.size());
  result.interval_seconds = std::chrono::duration<double>(interval_).count();
  const auto sm = known(samples_, &GpuNow::sm_clock_mhz);
  result.sm_clock_mhz = middle(sm);
  result.lowest_sm_clock_mhz = sm.empty() ? 0 : sm.front();
  result.most_sm_clock_mhz = gpu_->most_sm_clock_mhz.value_or(0);
  result.memory_clock_mhz = middle(known(samples_, &GpuNow::memory_clock_mhz));
  result.most_memory_clock_mhz = gpu_->most_memory_clock_mhz.value_or(0);
  const auto power = known(samples_, &GpuNow::power_watts);
  for (const double watts : power) result.power_watts += watts / static_cast<double>(power.size());
  result.highest_power_watts = power.empty() ? 0 : power.back();
  result.power_limit_watts = gpu_->power_limit_watts.value_or(0);
  const auto temperature = known(samples_, &GpuNow::temperature_celsius);
  result.temperature_celsius = temperature.empty() ? 0 : temperature.back();
  for (const GpuNow& sample : samples_) {
    const std::uint64_t reasons = sample.clock_reasons.value_or(0);
    if ((reasons & ~kIdleReason) != 0) ++result.held_back;
    for (std::size_t i = 0; i < kClockReasons.size(); ++i) {
      if ((reasons & kClockReasons.at(i).bit) != 0) ++result.with_reason.at(i);
    }
  }
  return result;
}

}  // namespace zeroplan::executor
