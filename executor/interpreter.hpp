#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "executor/decay_mask.hpp"
#include "executor/lowering.hpp"
#include "executor/player.hpp"

namespace zeroplan::executor {

// What the interpreter saw of the steps since the last clear_profile(). It does not grow with them.
struct Profile {
  struct Time {
    std::int64_t calls = 0;
    double seconds = 0;
  };
  std::vector<Time> of_instruction;  // by index into StepProgram::code
  // How long the kernels waited for collectives: those on their stream, and what they waited for of those beside them.
  double waited_for_traffic_seconds = 0;
  Bytes to_host_bytes = 0, to_device_bytes = 0;
};

// Runs a step program on a device: its lowered form is made before the first step and played in each. It knows nothing
// of ZeRO: stages, partitions and copies are already instructions.
//
// Streams run beside each other where every group can (DataPlaneCapabilities::runs_beside) and nothing is observed
// (Arena::observing); else each instruction ends before the next begins. The results are the same bits.
class Interpreter {
 public:
  Interpreter(const program::StepProgram& program, Device& device, Arena& arena, const GroupPlanes& groups);

  // Runs the setup phase: the states are held from here on.
  void setup();
  // Runs the rest: one optimizer step. Settings other than the step's own may change between steps, which costs a lowering.
  void step(const StepSettings& given, BatchSource& batches);

  const Profile& profile() const { return profile_; }
  void clear_profile();
  // One call of a collective.
  struct Call {
    std::size_t instruction = 0;  // index into StepProgram::code
    float seconds = 0;
  };
  // A group's collectives in the step that ran last, in the order of the program: the same on every rank of the group.
  std::vector<Call> calls(std::size_t group) const;

  // Where the program is, or where it failed first. Any thread may ask, at any time.
  program::Position position() const { return player_.position(); }
  // "matmul of layer 3 in forward": that point in words.
  std::string position_text() const;
  // "matmul of layer 3 in forward on compute, ...": what each stream finished last.
  std::string finished_text() const;
  // Where the arena's device block was first as full as it has ever been.
  const program::Position& peak_position() const { return lowering_.peak_position(); }

  // The scalars of the step that ran: loss, overflow, squared norm, loss scale ...
  float scalar(program::Scalar scalar) const;
  void set_scalar(program::Scalar scalar, float value);

  // The memory of an operand that is held now: states, between steps.
  Tensor tensor(program::BufferId buffer, std::int64_t layer) const;
  Tensor scalars() const { return lowering_.scalars(); }
  Device& device() const { return device_; }

 private:
  void lower(const StepSettings& settings);
  void add_times();
  std::string text_of(const program::Position& at) const;
  std::byte* scalars_from(program::Scalar first) const;

  const program::StepProgram& program_;
  Device& device_;
  Arena& arena_;
  DecayMask decay_mask_;
  StepSettings settings_;  // that the kernels have
  Lowering lowering_;
  Player player_;
  std::size_t first_after_setup_ = 0;
  bool runs_beside_ = false;
  std::optional<LoweredStep> step_;
  LoweringForm form_;  // of step_
  Profile profile_;
};

}  // namespace zeroplan::executor
