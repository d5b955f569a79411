#include "executor/player.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace zeroplan::executor {

using program::Position;
using program::Stream;

namespace {

using Clock = std::chrono::steady_clock;

// Phase, layer + 1, instruction + 1; so 0 is no position.
std::uint64_t packed(const Command& command) {
  return static_cast<std::uint64_t>(command.phase) << 56 |
         static_cast<std::uint64_t>(command.layer + 1) << 24 | (command.instruction + 1);
}

Position unpacked(std::uint64_t packed) {
  const auto instruction = static_cast<std::size_t>(packed & 0xffffff);
  return {static_cast<program::Phase>(packed >> 56), static_cast<std::int64_t>(packed >> 24 & 0xffffffff) - 1,
          instruction == 0 ? 0 : instruction - 1};
}

// When it ends, nothing runs on the device any more.
class Drained {
 public:
  explicit Drained(Device& device) : device_(device) {}
  ~Drained() { device_.drain(); }
  Drained(const Drained&) = delete;
  Drained& operator=(const Drained&) = delete;

 private:
  Device& device_;
};

}  // namespace

Player::Player(Device& device, Arena& arena) : device_(device), arena_(arena) {
  for (Device::Event& event : meetings_) event = device_.make_event();
}

void Player::prepare(const LoweredStep& step) {
  while (events_.size() < step.events) events_.push_back(device_.make_event());
  seconds_.assign(step.plays(), 0);
  for (const auto& batch : step.batches) {
    for (std::size_t i = 0; i < batch.size(); ++i)
      batch_[i].resize(std::max(batch_[i].size(), static_cast<std::size_t>(batch[i].elements)));
  }
}

void Player::play(const LoweredStep& step, BatchSource* batches) {
  // What another stream still does may not outlive the memory that it works on.
  const Drained drained(device_);
  std::fill(seconds_.begin(), seconds_.end(), 0.0F);
  waited_for_traffic_seconds_ = 0;
  progress_.clear();
  try {
    float* seconds = seconds_.data();
    for (const LoweredStep::Part& part : step.parts) {
      for (std::int64_t time = 0; time < part.times; ++time) {
        for (std::size_t i = part.begin; i < part.end; ++i) play(step, step.commands[i], batches, seconds++);
      }
    }
    device_.synchronize();
  } catch (...) {
    progress_.fail(position_.load(std::memory_order_relaxed));
    throw;
  }
}

void Player::play(const LoweredStep& step, const Command& command, BatchSource* batches, float* seconds) {
  const std::uint64_t here = packed(command);
  position_.store(here, std::memory_order_relaxed);
  for (std::size_t i = 0; i < command.waits; ++i) {
    const CommandWait& wait = step.waits[command.first_wait + i];
    device_.wait(command.stream, events_[wait.event],
                 wait.for_traffic ? &waited_for_traffic_seconds_ : nullptr);
  }
  const Watch watch{seconds, &progress_, here};
  switch (command.kind) {
    case Command::Kind::kernel:
      device_.execute(step.kernels[command.what], command.stream, watch);
      break;
    case Command::Kind::transfer: {
      const GroupTransfer& transfer = step.transfers[command.what];
      transfer.ranks->enqueue(transfer.transfer, device_, command.stream, watch);
      break;
    }
    case Command::Kind::batch: {
      const auto start = Clock::now();
      load(step.batches[command.what], command.stream, *batches);
      *seconds = std::chrono::duration<float>(Clock::now() - start).count();
      break;
    }
    case Command::Kind::acquire:
      arena_.begin_life(step.lives[command.what]);
      break;
    case Command::Kind::release:
      device_.synchronize();  // what was written is looked at
      arena_.end_life(step.lives[command.what]);
      break;
    case Command::Kind::meet:
      meet();
      break;
  }
  if (command.signals != Command::kNoEvent) device_.record(events_[command.signals], command.stream);
}

void Player::meet() {
  constexpr auto kCompute = Stream::compute;
  for (std::size_t s = 0; s < meetings_.size(); ++s) {
    const auto stream = static_cast<Stream>(s);
    if (stream == kCompute) continue;
    const bool traffic = stream == Stream::communication || stream == Stream::tensor;
    device_.record(meetings_[s], stream);
    device_.wait(kCompute, meetings_[s], traffic ? &waited_for_traffic_seconds_ : nullptr);
  }
  const Device::Event all = meetings_[static_cast<std::size_t>(kCompute)];
  device_.record(all, kCompute);
  for (std::size_t s = 0; s < meetings_.size(); ++s) {
    if (static_cast<Stream>(s) != kCompute) device_.wait(static_cast<Stream>(s), all, nullptr);
  }
}

void Player::load(const std::array<Tensor, 2>& batch, program::Stream stream, BatchSource& batches) {
  std::array<std::span<std::int32_t>, 2> host;
  for (std::size_t i = 0; i < batch.size(); ++i)
    host[i] = std::span(batch_[i]).first(static_cast<std::size_t>(batch[i].elements));
  batches.next(host[0], host[1]);
  for (std::size_t i = 0; i < batch.size(); ++i)
    device_.upload(batch[i].data, std::as_bytes(host[i]), stream);
}

Position Player::position() const {
  const std::uint64_t failed = progress_.failed.load(std::memory_order_relaxed);
  return unpacked(failed != 0 ? failed : position_.load(std::memory_order_relaxed));
}

std::vector<std::pair<program::Stream, Position>> Player::finished() const {
  std::vector<std::pair<program::Stream, Position>> last;
  for (std::size_t stream = 0; stream < progress_.finished.size(); ++stream) {
    const std::uint64_t at = progress_.finished[stream].load(std::memory_order_relaxed);
    if (at != 0) last.emplace_back(static_cast<program::Stream>(stream), unpacked(at));
  }
  return last;
}

}  // namespace zeroplan::executor
