#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "executor/batches.hpp"
#include "executor/rank.hpp"
#include "executor/rate_schedule.hpp"
#include "executor/saving.hpp"
#include "executor/weights.hpp"
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
  MakeDataPlanes planes;             // absent: those of `world`, for devices whose memory the host reaches
  std::int64_t ranks_of_device = 1;  // that share one

  BatchShape batches;  // its rank and first sequence are set here
  std::int64_t vocabulary = 0;
  DataSource data;
  std::uint64_t seed = 0;  // of the weights

  StepSettings settings;  // its learning rate is the highest
  RateSchedule rate;      // steps 0: to the last step of this run
  float loss_scale = 1;   // to begin with
  std::int64_t warm_up_steps = 1;
  std::int64_t measured_steps = 3;

  std::string resume;                          // a checkpoint, or empty
  std::shared_ptr<const WeightFiles> weights;  // to start from; nullptr: drawn from `seed`
  SavePlan save;
  std::string export_to;  // a safetensors file for the weights at the end, or empty
  std::optional<program::WeightNames> export_names;
  TrainingIdentity identity;

  // Rank 0: after each step; and what is to be known beside the steps: that one takes longer than `heartbeat`,
  // with where it is (from another thread), or that a checkpoint is of other data.
  std::function<void(const program::StepMeasurement&)> stepped;
  std::function<void(const std::string&)> still_running;
  std::chrono::milliseconds heartbeat{10'000};

  // Any rank, after each step: the number of a signal that asks for the end, or 0. The run then ends after the
  // same step on all ranks, saved and measured as at its planned end.
  std::function<int()> signal;
};

// One rank's part of a run; every rank of `world` calls it. Complete on rank 0, which hears from the others.
// Throws DeviceError, CommunicationError and ConfigurationError; the first two say at which instruction of
// which step. Throws NotPossible where the device has no room for the ranks that share it.
program::Measurement train(const TrainingJob& job, Communicator& world);

}  // namespace zeroplan::executor
