#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "executor/arena.hpp"
#include "executor/communicator/communicator.hpp"
#include "executor/device/device.hpp"
#include "executor/initialize.hpp"
#include "executor/interpreter.hpp"

namespace zeroplan::executor {

// What one optimizer step came to, the same on every rank.
struct StepResult {
  float loss = 0;           // mean over all tokens
  float gradient_norm = 0;  // global, before clipping, of the unscaled gradients
  float loss_scale = 1;
  bool skipped = false;  // overflow: nothing was updated
};

// Makes the data planes of a rank's groups, in their order, which move its device's memory. Every rank of `world` calls it
// with its own.
using DataPlanes = std::vector<std::unique_ptr<DataPlane>>;
using MakeDataPlanes =
    std::function<DataPlanes(ControlPlane& world, Device& device, std::span<const program::Group> groups)>;

// Reads a device's memory as its driver counts it now.
using ReadDeviceMemory = std::function<program::DeviceMemoryUse(const Device& device)>;

// One rank: a device, its arena, its groups and a program, whose groups say which ranks of `world` they have.
class Rank {
 public:
  // Without `planes`, groups move memory of the host; without `read_memory` the device is asked alone.
  Rank(program::StepProgram program, ArenaSize size, std::unique_ptr<Device> device, ControlPlane& world,
       const MakeDataPlanes& planes = {}, const ReadDeviceMemory& read_memory = {});
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void initialize(const ParameterValue& value, float loss_scale = 1);
  // Runs one step. `settings.step` and `tokens_per_step` are set here.
  StepResult step(StepSettings settings, BatchSource& batches);

  const program::StepProgram& program() const { return program_; }
  const Arena& arena() const { return arena_; }
  Arena& arena() { return arena_; }
  Interpreter& interpreter() { return interpreter_; }
  Device& device() { return *device_; }
  // Of each of the program's groups: on which its ranks agree, and on which their devices exchange memory.
  ControlPlane& control_plane(std::size_t group) const { return *groups_[group]; }
  DataPlane& data_plane(std::size_t group) const {
    return planes_.empty() ? static_cast<DataPlane&>(*groups_[group]) : *planes_[group];
  }
  // The device's memory when its arena was there, and when what its groups exchange memory with was.
  const program::DeviceMemoryUse& with_arena() const { return with_arena_; }
  const program::DeviceMemoryUse& with_planes() const { return with_planes_; }
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }

 private:
  program::StepProgram program_;
  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<Communicator>> groups_;
  Arena arena_;
  program::DeviceMemoryUse with_arena_;
  DataPlanes planes_;  // empty: those of groups_. They end before the memory that they move
  program::DeviceMemoryUse with_planes_;
  Interpreter interpreter_;
  std::int64_t steps_ = 0;  // updates done
};

// The position of a world rank in its two groups.
program::RankPosition position_of(std::int64_t world_rank, std::int64_t tensor_parallel);

}  // namespace zeroplan::executor
