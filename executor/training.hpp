#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "executor/batches.hpp"
#include "executor/checkpoint.hpp"
#include "executor/rank.hpp"
#include "executor/rate_schedule.hpp"
#include "planner/program/measurement.hpp"

namespace zeroplan::executor {

// What a rank runs, and the memory that was laid out for it.
struct RankPlan {
  program::StepProgram program;
  ArenaSize arena;
};

// A training run that is measured, the same on every rank.
struct TrainingJob {
  std::int64_t tensor_parallel = 1;
  std::function<RankPlan(program::RankPosition)> plan;
  std::function<std::unique_ptr<Device>()> device;

  BatchShape batches;  // its rank and first sequence are set here
  std::int64_t vocabulary = 0;
  DataSource data;
  std::uint64_t seed = 0;  // of the weights

  StepSettings settings;  // its learning rate is the highest
  RateSchedule rate;      // steps 0: to the last step of this run
  float loss_scale = 1;   // to begin with
  std::int64_t warm_up_steps = 1;
  std::int64_t measured_steps = 3;

  std::string resume, save;  // checkpoint files, or empty
  TrainingIdentity identity;

  // Rank 0: after each step; and what is to be known beside the steps: that one takes longer than `heartbeat`,
  // with where it is (from another thread), or that a checkpoint is of other data.
  std::function<void(const program::StepMeasurement&)> stepped;
  std::function<void(const std::string&)> still_running;
  std::chrono::milliseconds heartbeat{10'000};
};

// One rank's part of a run; every rank of `world` calls it. Complete on rank 0, which hears from the others.
// Throws DeviceError, CommunicationError and ConfigurationError; the first two say at which instruction of
// which step.
program::Measurement train(const TrainingJob& job, Communicator& world);

}  // namespace zeroplan::executor
