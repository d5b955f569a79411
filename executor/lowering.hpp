#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "executor/decay_mask.hpp"
#include "executor/lowered_step.hpp"

namespace zeroplan::executor {

// As StepProgram::groups.
using GroupPlanes = std::vector<DataPlane*>;

// How a step is to be played.
struct LoweringForm {
  // Streams run beside each other, with the waits of the program. Else every instruction runs on the compute stream, one
  // after the other; the results are the same bits.
  bool beside = true;
  // Acquires and releases are played too, for what is done with the contents of memory then.
  bool with_memory = false;

  bool operator==(const LoweringForm&) const = default;
};

// Walks a step program once and writes down what a device does in it. It places the step's memory in the arena as it goes,
// so addresses and the arena's high water are known afterwards, and nothing of the step is held.
class Lowering {
 public:
  // `settings` is what the kernels are given. All must outlive the lowered steps.
  Lowering(const program::StepProgram& program, const Device& device, Arena& arena, const GroupPlanes& groups,
           const DecayMask& decay_mask, const StepSettings& settings);

  // Instructions [begin, end) of the program. Throws DeviceError where the device does not have an instruction, or memory
  // was not laid out, and CommunicationError where a collective's group has no data plane.
  LoweredStep lower(std::size_t begin, std::size_t end, LoweringForm form);

  // The scalars, which are held from the setup phase on.
  Tensor scalars() const { return arena_.tensor(scalars_, 0); }

  // Where the arena's device block was first as full as it has ever been.
  const program::Position& peak_position() const { return peak_position_; }

 private:
  struct Registers {
    std::int64_t layer = 0;
    std::int64_t iteration = 0;
    bool in_layers = false;
    bool in_iterations = false;
  };
  // An iteration of a loop: where it begins in what was lowered.
  struct Mark {
    std::size_t command = 0, wait = 0, kernel = 0, transfer = 0, batch = 0, life = 0;
  };

  void run(std::size_t begin, std::size_t end, const Registers& registers);
  void iterate(std::size_t repeat, const Registers& registers);
  Mark mark() const;
  bool is_alike(const Mark& loop, const Mark& before, const Mark& now) const;
  void fold(const Mark& loop, const Mark& before, const Mark& now, std::int64_t times);
  void add(const Command& command);
  void emit(std::size_t index, const Registers& registers);
  void order(std::size_t index, Command& command);
  void memory(const program::Instruction& instruction, const Registers& registers, Command command);
  void meet(Command command);
  void name_events();
  Kernel kernel(const program::Instruction& instruction, const Registers& registers) const;
  DrawnMask mask(const program::Instruction& instruction, const Registers& registers) const;
  GroupTransfer transfer(const program::Instruction& instruction, const Registers& registers) const;
  Tensor operand(const program::Instruction& instruction, std::size_t index,
                 const Registers& registers) const;

  const program::StepProgram& program_;
  const Device& device_;
  Arena& arena_;
  GroupPlanes groups_;
  const DecayMask& decay_mask_;
  const StepSettings& settings_;
  program::BufferId scalars_ = program::kNoBuffer;
  program::Phase phase_ = program::Phase::setup;
  program::Position peak_position_;

  LoweringForm form_;
  LoweredStep step_;
  // Of each event of the program's order, the commands that signalled it, the youngest last, as far as anybody can wait
  // for them; and while a step is lowered, Command::signals is the event of the program and CommandWait::event a command.
  std::vector<std::vector<std::uint32_t>> signalled_;
  std::vector<std::uint32_t> same_event_;  // by command: the one with which it has its event, mostly itself
};

}  // namespace zeroplan::executor
