#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "executor/arena.hpp"
#include "executor/communicator/data_plane.hpp"
#include "executor/device/device.hpp"
#include "planner/program/measurement.hpp"
#include "planner/program/step_program.hpp"

namespace zeroplan::executor {

// One instruction of a step, resolved: what runs on which stream, after what.
struct Command {
  enum class Kind : std::uint8_t {
    kernel,    // LoweredStep::kernels
    transfer,  // LoweredStep::transfers
    batch,     // LoweredStep::batches: the next micro-batch
    acquire,   // LoweredStep::lives: of memory whose contents are observed
    release,
    meet,  // every stream is waited for
  };
  static constexpr std::uint32_t kNoEvent = 0xffffffff;

  Kind kind = Kind::kernel;
  program::Stream stream = program::Stream::compute;
  program::Phase phase = program::Phase::setup;
  std::int32_t layer = -1;                  // -1: outside the layers
  std::uint32_t instruction = 0;            // index into StepProgram::code
  std::uint32_t what = 0;                   // index into what its kind says
  std::uint32_t first_wait = 0, waits = 0;  // of LoweredStep::waits
  std::uint32_t signals = kNoEvent;         // the event that is recorded behind it

  bool operator==(const Command&) const = default;
};

// Before a command: until what was recorded last on the event is done.
struct CommandWait {
  std::uint32_t event = 0;
  bool for_traffic = false;  // its kernels wait for a collective beside them

  bool operator==(const CommandWait&) const = default;
};

struct GroupTransfer {
  DataPlane* ranks = nullptr;
  std::size_t group = 0;  // index into StepProgram::groups
  Transfer transfer;
};

// What a device does in one step, in the order in which it is issued: nothing is looked up or decided while it is played,
// and addresses are the same in every step. Layers are unrolled; micro-batches that are alike are one part that is
// played several times.
struct LoweredStep {
  struct Part {
    std::size_t begin = 0, end = 0;  // of commands
    std::int64_t times = 1;
  };

  std::vector<Part> parts;
  std::vector<Command> commands;
  std::vector<CommandWait> waits;
  std::vector<Kernel> kernels;
  std::vector<GroupTransfer> transfers;
  std::vector<std::array<Tensor, 2>> batches;  // tokens, targets
  std::vector<Arena::Life> lives;
  std::uint32_t events = 0;

  // How many commands one step plays.
  std::size_t plays() const {
    std::size_t plays = 0;
    for (const Part& part : parts) plays += (part.end - part.begin) * static_cast<std::size_t>(part.times);
    return plays;
  }
};

// Calls visit(command, number), in the order in which they are played; `number` counts the plays of a step from 0.
template <class Visit>
void for_each_play(const LoweredStep& step, const Visit& visit) {
  std::size_t number = 0;
  for (const LoweredStep::Part& part : step.parts) {
    for (std::int64_t time = 0; time < part.times; ++time) {
      for (std::size_t i = part.begin; i < part.end; ++i) visit(step.commands[i], number++);
    }
  }
}

}  // namespace zeroplan::executor
