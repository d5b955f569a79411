#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/describe/plan/plan.hpp"
#include "planner/predict/memory.hpp"
#include "planner/predict/metrics.hpp"
#include "planner/predict/time.hpp"
#include "planner/predict/traffic.hpp"
#include "planner/predict/verdict.hpp"
#include "planner/predict/work.hpp"
#include "planner/program/step_program.hpp"

namespace zeroplan::predict {

// A term of memory that the program does not acquire, with where its figure is from.
struct OverheadTerm {
  std::string name;
  Bytes bytes = 0;
  std::string source;
};

// One stage of a plan: ranks of different pipeline stages run different programs, all others alike ones.
struct StagePrediction {
  program::StepProgram program;
  MemoryProfile memory;
  Traffic traffic;
  Work work;
};

// Everything known about one plan before it runs.
struct Prediction {
  std::vector<StagePrediction> stages{
      1};                 // the distinct ones, in the order of a pipeline; there is one without any
  std::size_t worst = 0;  // the stage that needs most memory, whose memory the answer is
  StepTime time;          // of a step, from all stages together

  const StagePrediction& worst_stage() const { return stages[worst]; }
  const program::StepProgram& program() const { return worst_stage().program; }
  const MemoryProfile& memory() const { return worst_stage().memory; }
  const Traffic& traffic() const { return worst_stage().traffic; }
  const Work& work() const { return worst_stage().work; }

  MemoryNeed need;
  std::vector<OverheadTerm> overheads;
  Bytes overhead_bytes = 0;
  Bytes driver_granule = 1;     // the device gives the engine memory in multiples of this
  Bytes model_state_bytes = 0;  // parameters, gradients and optimizer state held through the step
  Bytes peak_bytes = 0;         // memory.peak + overhead_bytes
  Bytes capacity_bytes = 0;     // what a program can use on the device, less the reserve
  std::string capacity_basis;
  Bytes host_bytes_per_device = 0;
  Bytes host_bytes_per_node = 0;        // with the engine's host_factor for pinned buffers, loading, saving
  Bytes host_bytes_per_node_least = 0;  // without it. The verdict takes the middle
  std::optional<Bytes> host_capacity_bytes;  // of a node; less what the ranks hold where they are processors
  double traffic_psi = 0;
  Verdict verdict = Verdict::fits;
  std::string verdict_reason;
  std::vector<Missing> missing;  // what keeps the verdict from being said

  // Known to. Of a plan that is neither, nobody can say.
  bool fits() const { return verdict == Verdict::fits || verdict == Verdict::fits_tightly; }
  bool does_not_fit() const { return verdict == Verdict::does_not_fit; }
};

// Of a plan whose program has this memory.
MemoryNeed memory_need(const program::StepProgram& program, const MemoryProfile& memory,
                       const describe::Model& model, const describe::Plan& plan,
                       const describe::Cluster& cluster);

Prediction predict(const describe::Model& model, const describe::Plan& plan,
                   const describe::Cluster& cluster);

// Whether the times, rates and costs of a prediction are worth telling: they are known, and the plan is not
// known not to fit.
inline bool has_time(const Prediction& prediction) {
  return prediction.time.is_known() && !prediction.does_not_fit();
}

// The step of a prediction, for training_metrics(); nothing without has_time().
std::optional<TrainingStep> training_step(const Prediction& prediction, const describe::Plan& plan,
                                          const describe::Device& device);

// Why there is no time, as half a sentence; empty with has_time().
std::string why_no_time(const Prediction& prediction, const describe::Plan& plan,
                        const describe::Cluster& cluster);

// What the times of a plan, where there are any, hold under only; each a sentence without its full stop.
std::vector<std::string> time_conditions(const Prediction& prediction, const describe::Plan& plan,
                                         const describe::Cluster& cluster);

// Whether what an engine does on this machine was never held against a run there: a GPU, and an engine that
// has not run on one.
bool is_unproven(const describe::Engine& engine, const describe::Device& device);

}  // namespace zeroplan::predict
