#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "executor/training.hpp"

// Measures how long the instructions of a step program take where they run: a calibration is made of such
// programs, and knows devices and communicators by their interfaces alone.
namespace zeroplan::executor {

// A program that is run for its times.
struct TimedProgram {
  RankPlan plan;
  MakeDataPlanes planes{};  // as TrainingJob's
  BatchShape batches;       // its rank is set here
  std::int64_t vocabulary = 0;
  std::int64_t warm_up = 1;
  std::int64_t repeats = 3;
  StepSettings settings{};
  float loss_scale = 1;
};

struct InstructionSeconds {
  // Seconds of each instruction by its index, the mean of its calls in one repeat, on this rank; 0 where it
  // did not run.
  std::vector<std::vector<double>> repeats;
  std::vector<std::vector<double>> waiting;  // of those: for other ranks
  Bytes workspace_bytes = 0;                 // of the device, afterwards
  Bytes beside_buffers_bytes =
      0;  // what its driver counts afterwards, less what it did with the buffers there
};

// Every rank of `world` calls it with its own program; they meet before each repeat.
InstructionSeconds time_program(TimedProgram timed, std::unique_ptr<Device> device, Communicator& world);

}  // namespace zeroplan::executor
