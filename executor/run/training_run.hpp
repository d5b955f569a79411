#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "executor/launch.hpp"
#include "executor/run_identity.hpp"
#include "executor/training.hpp"

// A whole training run on this machine: ranks, their devices and communicators, data, weights, and the limits that the
// process gets. What is planned comes in as plain data, what is asked of a run as settings.
namespace zeroplan::executor {

// What is asked of a run, beside its plan.
struct RunSettings {
  std::int64_t steps = 3;    // measured
  std::int64_t warm_up = 1;  // before them
  std::uint64_t seed = 1;
  double dropout = 0.1;                          // the share that is dropped, where the plan has dropout
  std::string data, resume, weights, export_to;  // files, or empty
  SavePlan save;
  TokenType data_type = TokenType::automatic;
  bool shuffle = true;  // the data
  double learning_rate = 3e-4, weight_decay = 0.01, clip_norm = 1;
  RateSchedule rate;
  Decayed decayed = Decayed::matrices;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double loss_scale = 65536;  // to begin with, where the plan scales its loss
  std::int64_t loss_scale_window = 1000;
  std::string device = "cpu";  // or cuda
  int device_index = -1;  // of the GPU, which ranks that are threads share; -1: each rank of a host its own
  int threads = 0;        // of a rank; 0: the processors divided by the ranks
  std::chrono::milliseconds timeout{60'000};
  bool pin = true;  // ranks to cores, where they fit
};

// What is planned.
struct RunPlan {
  std::string model;  // its name, for messages
  std::int64_t tensor_parallel = 1;
  BatchShape batches;  // of data-parallel rank 0
  std::int64_t vocabulary = 0, hidden = 0;
  ArenaSize arena;  // of a rank
  std::function<program::StepProgram(program::RankPosition)> program;
  bool scales_loss = false;
  std::optional<program::WeightNames> weight_names;  // of Hugging Face; nothing where they are not known
  TrainingIdentity identity;
  Bytes host_memory_bytes = 0;  // of this host

  std::int64_t ranks() const { return batches.data_parallel * tensor_parallel; }
};

// Who hears of a run while it goes on. Each may be absent.
struct RunListeners {
  std::function<void(const program::StepMeasurement&)> stepped{};  // rank 0, after each step
  // Rank 0: what is to be known beside the steps. Any thread.
  std::function<void(const std::string&)> say{};
  std::function<void(const std::string&)> refused{}, stalled{};  // RankOptions
  std::function<int()> signal{};                                 // TrainingJob
};

struct TrainingRun {
  const RunPlan& plan;
  const RunSettings& settings;
  const Launch& launch;
  const RunIdentity& identity;
  std::shared_ptr<const TokenFile> data{};       // nullptr: tokens are drawn from the seed
  std::shared_ptr<const WeightFiles> weights{};  // nullptr: they are drawn from the seed
  RunListeners listeners{};
};

// The file of --data, or nullptr. Throws ConfigurationError naming --data when it has no sequence of the plan.
std::shared_ptr<const TokenFile> open_data(const RunSettings& settings, const RunPlan& plan);

// The files of --weights, or nullptr. Throws ConfigurationError: what is wrong with them, or that the names of the
// model are not known, also for --export.
std::shared_ptr<const WeightFiles> open_weights(const RunSettings& settings, const RunPlan& plan);

// Trains, and returns what was measured; complete in the process of rank 0. Throws NotPossible, DeviceError,
// CommunicationError (executor/error.hpp) and ConfigurationError. A run of MPI that fails ends the process.
program::Measurement run_training(const TrainingRun& run);

}  // namespace zeroplan::executor
