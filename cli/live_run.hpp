#pragma once

#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "cli/record_stream.hpp"
#include "executor/run/training_run.hpp"
#include "planner/describe/plan/plan.hpp"
#include "planner/predict/prediction.hpp"
#include "planner/program/measurement.hpp"

namespace zeroplan::cli {

// Why a plan cannot run on this machine, whatever its memory is; nothing when it can. What of the model the
// program does not compute as it should is in its approximations; what of the plan the CPU device lacks is
// known here.
std::optional<std::string> cannot_run(const describe::Model& model, const describe::Plan& plan,
                                      const program::StepProgram& program);

// Whether the ranks of this host, each with what is predicted for it, are more than it has; then in words. Ranks on GPUs
// (`on_gpus`) need of it what is offloaded.
std::optional<std::string> too_large_here(const predict::Prediction& prediction, const describe::Plan& plan,
                                          const executor::Launch& launch, bool on_gpus);

// What the executor needs of a plan.
executor::RunPlan run_plan(const describe::Model& model, const describe::Plan& plan,
                           const predict::Prediction& prediction);

struct LiveRun {
  const describe::Model& model;
  const describe::Plan& plan;
  const predict::Prediction& prediction;
  const executor::RunSettings& settings;
  const executor::Launch& launch;
  const executor::RunIdentity& identity;
  std::shared_ptr<const executor::TokenFile> data{};       // nullptr: tokens are drawn from the seed
  std::shared_ptr<const executor::WeightFiles> weights{};  // nullptr: they are drawn from the seed
  std::ostream* progress = nullptr;
  RecordStream* record = nullptr;  // where each step is written down as it is done
};

// As executor::run_training, with each step told and written down.
program::Measurement run_live(const LiveRun& run);

}  // namespace zeroplan::cli
