#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "executor/arena.hpp"
#include "executor/communicator/data_plane.hpp"
#include "executor/decay_mask.hpp"
#include "executor/device/device.hpp"
#include "planner/program/measurement.hpp"
#include "planner/program/step_program.hpp"

namespace zeroplan::executor {

// Where a rank's micro-batches come from. Called in order; ranks of one tensor-parallel group must get the
// same.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual void next(std::span<std::int32_t> tokens, std::span<std::int32_t> targets) = 0;
};

// What the interpreter saw of the steps since the last clear_profile().
struct Profile {
  struct Time {
    std::int64_t calls = 0;
    double seconds = 0;
  };
  // One call of a collective.
  struct Call {
    std::size_t instruction = 0;  // index into StepProgram::code
    float seconds = 0;
  };
  std::vector<Time> of_instruction;  // by index into StepProgram::code
  // By group, in the order they were made, since the last clear_calls(): the same on every rank of the group.
  std::array<std::vector<Call>, program::kGroups> collectives;
  // How long the kernels waited for collectives: those on their stream, and what they waited for of those beside them.
  double waited_for_traffic_seconds = 0;
  Bytes to_host_bytes = 0, to_device_bytes = 0;
};

// Walks a step program and issues it to the device's streams, with the waits that are in the program. It knows nothing
// of ZeRO: stages, partitions and copies are already instructions. Groups of one rank may be nullptr.
//
// Streams run beside each other where every group can (DataPlaneCapabilities::runs_beside) and nothing is observed
// (Arena::observing); else each instruction ends before the next begins. The results are the same bits.
class Interpreter {
 public:
  using Groups = std::array<DataPlane*, program::kGroups>;  // by program::Group

  Interpreter(const program::StepProgram& program, Device& device, Arena& arena, const Groups& groups);
  ~Interpreter() = default;
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Runs the setup phase: the states are held from here on.
  void setup();
  // Runs the rest: one optimizer step.
  void step(const StepSettings& given, BatchSource& batches);

  const Profile& profile() const { return profile_; }
  void clear_profile();
  // Forgets the single calls of a group's collectives; their sums stay.
  void clear_calls(program::Group group);

  // Where the program is, or where it failed first. Any thread may ask, at any time.
  program::Position position() const;
  // "matmul of layer 3 in forward": that point in words.
  std::string position_text() const;
  // Where the arena's device block was first as full as it has ever been.
  const program::Position& peak_position() const { return peak_position_; }

  // The scalars of the step that ran: loss, overflow, squared norm, loss scale ...
  float scalar(program::Scalar scalar) const;
  void set_scalar(program::Scalar scalar, float value);
  void clear_scalars();

  // The memory of an operand that is held now: states, between steps.
  Tensor tensor(program::BufferId buffer, std::int64_t layer) const;

 private:
  struct Registers {
    std::int64_t layer = 0;
    std::int64_t iteration = 0;
    bool in_layers = false;
  };
  void run(std::size_t begin, std::size_t end, Registers registers, const StepSettings& settings,
           BatchSource* batches);
  // In the order of its stream, after what it waits for.
  void issue(std::size_t index, Registers registers, const StepSettings& settings, BatchSource* batches);
  void wait_for_all();
  void wait(program::Stream stream, program::Stream other, Device::Event event);
  void forget_events();
  std::uint64_t packed(std::size_t instruction, Registers registers) const;
  void add_time(std::size_t index, double seconds);
  void memory(const program::Instruction& instruction, std::int64_t layer);
  Transfer transfer(const program::Instruction& instruction, std::int64_t layer) const;
  // The only place that finds the ranks of a group.
  DataPlane& ranks_of(const program::Instruction& instruction) const;
  Kernel kernel(const program::Instruction& instruction, Registers registers, const StepSettings& settings);
  Tensor operand(const program::Instruction& instruction, std::size_t index, std::int64_t layer) const;
  std::int64_t instance_of(program::BufferId buffer, std::int64_t layer) const;
  Tensor scalars() const;

  const program::StepProgram& program_;
  Device& device_;
  Arena& arena_;
  Groups groups_;
  DecayMask decay_mask_;
  std::size_t first_after_setup_ = 0;
  program::BufferId scalars_ = program::kNoBuffer;
  program::Phase phase_ = program::Phase::setup;
  std::atomic<std::uint64_t> position_ = 0;   // packed: phase, layer + 1, instruction
  std::atomic<std::uint64_t> failed_at_ = 0;  // the same, of what another stream's thread threw
  bool overlaps_ = false;
  // Of each event of the program's order, the executions that may be waited for, the youngest last.
  struct Executions {
    std::vector<Device::Event> youngest;  // a ring
    std::size_t count = 0;                // since everything was waited for
  };
  std::vector<Executions> executions_;
  program::Position peak_position_;
  Profile profile_;
};

}  // namespace zeroplan::executor
