#include "cli/live_run.hpp"

#include <fmt/format.h>

#include <memory>

#include "cli/ranks.hpp"
#include "cli/signals.hpp"
#include "cli/step_progress.hpp"
#include "executor/run/ranks.hpp"
#include "planner/program/block_places.hpp"
#include "planner/program/compile.hpp"
#include "reports/approximations.hpp"
#include "reports/numbers.hpp"
#include "reports/validation_stream.hpp"

namespace zeroplan::cli {
namespace {

using executor::Launch;

constexpr std::int64_t kMostThreadRanks = 1024;

// Where the tokens come from.
std::string batches_text(const LiveRun& run) {
  if (run.data == nullptr) return fmt::format("seed {}", run.settings.seed);
  return fmt::format("{} ({} of type {}{})", run.settings.data, reports::counted(run.data->tokens(), "token"),
                     name_of(run.data->type()), run.settings.shuffle ? ", shuffled" : "");
}

executor::RunListeners listeners_of(const LiveRun& run) {
  const auto progress = run.progress == nullptr
                            ? nullptr
                            : std::make_shared<StepProgress>(*run.progress, run.prediction,
                                                             run.settings.warm_up + run.settings.steps);
  executor::RunListeners listeners;
  listeners.stepped = [progress, record = run.record](const program::StepMeasurement& step) {
    if (progress != nullptr) progress->step(step);
    if (record != nullptr) record->write(reports::step_line(step));
  };
  if (progress != nullptr) listeners.say = [progress](const std::string& line) { progress->say(line); };
  listeners.refused = teller_of(run.progress);
  listeners.stalled = end_stalled;
  listeners.signal = EndAfterStep::signal;
  return listeners;
}

}  // namespace

executor::RunPlan run_plan(const describe::Model& model, const describe::Plan& plan,
                           const predict::Prediction& prediction) {
  executor::RunPlan run;
  run.model = model.name;
  run.tensor_parallel = plan.tensor_parallel;
  run.batches.sequence = plan.sequence;
  run.batches.micro_batch = plan.micro_batch;
  run.batches.gradient_accumulation = plan.gradient_accumulation;
  run.batches.data_parallel = plan.data_parallel;
  run.vocabulary = model.vocabulary;
  run.hidden = model.hidden;
  const program::BlockSizes blocks = program::block_sizes(prediction.program());
  run.arena = {blocks.device, blocks.host, plan.contiguous_memory, true, plan.engine->alignment_bytes};
  run.program = [&model, &plan](program::RankPosition position) {
    return program::compile(model, plan, position);
  };
  run.scales_loss = plan.precision == describe::Precision::fp16;
  run.weight_names = program::huggingface_names(model, plan.sequence);
  run.identity = {{"model", model.name},
                  {"parameters", fmt::format("{}", prediction.program().parameters)},
                  {"dtype", std::string(describe::name_of(plan.precision))},
                  {"optimizer", plan.optimizer->name}};
  run.host_memory_bytes = describe::host_memory_bytes();
  return run;
}

std::optional<std::string> cannot_run(const describe::Model& model, const describe::Plan& plan,
                                      const program::StepProgram& program) {
  if (plan.engine->arithmetic_only) {
    return fmt::format("the engine {} is arithmetic, and no program that runs: it predicts only",
                       plan.engine->name);
  }
  if (!model.is_shape()) return "only the number of parameters is known; running needs the model's shape";
  if (model.head_outputs > 0) return "the loss of a classifier is planned, but not run yet";
  if (model.vocabulary == 1) {
    return "a vocabulary of one token leaves nothing to learn: the loss is 0, and so is every gradient";
  }
  for (const program::Approximation& approximation : program.approximations) {
    if (!approximation.trains_another_model) continue;
    return fmt::format("this would train another model than {}: {}", model.name,
                       reports::approximation_text(approximation));
  }
  if (model.hidden == 1) return "a norm over one element leaves nothing of it: every gradient is 0";
  if (model.position == describe::Position::rotary && program.constants.rotary_dims == 0 &&
      model.head_dim % 2 != 0) {
    return fmt::format("rotary embeddings turn pairs of a head's elements, and there are {}", model.head_dim);
  }
  if (plan.tensor_parallel > 1 && model.query_key_norm != describe::QueryKeyNorm::none) {
    return "norms over query and key heads that tensor-parallel ranks share are planned, but not run yet; "
           "they are with tp 1";
  }
  if (plan.tensor_parallel > model.kv_heads) {
    return "key-value heads that tensor-parallel ranks share are planned, but not run yet; tp up to the "
           "key-value heads is";
  }
  if (plan.optimizer->name != "adam" && plan.optimizer->name != "sgd" &&
      plan.optimizer->name != "sgd-momentum") {
    return fmt::format("the optimizer {} is planned, but not run yet; adam, sgd and sgd-momentum are",
                       plan.optimizer->name);
  }
  return std::nullopt;
}

std::optional<std::string> too_large_here(const predict::Prediction& prediction, const describe::Plan& plan,
                                          const Launch& launch, bool on_gpus) {
  const std::int64_t ranks = executor::ranks_here(launch, plan.devices());
  if (launch.kind == Launch::Kind::threads && ranks > kMostThreadRanks) {
    return fmt::format("{} ranks as threads of one process; the most is {}", ranks, kMostThreadRanks);
  }
  const Bytes needed = ranks * ((on_gpus ? 0 : prediction.memory().peak) + prediction.memory().host_peak);
  const Bytes here = describe::host_memory_bytes();
  if (needed <= here) return std::nullopt;
  return fmt::format("the {} of this machine need {} bytes, and it has {}", reports::counted(ranks, "rank"),
                     reports::thousands(needed), reports::thousands(here));
}

program::Measurement run_live(const LiveRun& run) {
  const EndAfterStep ending(run.progress != nullptr);
  const executor::RunPlan plan = run_plan(run.model, run.plan, run.prediction);
  program::Measurement measurement = executor::run_training(
      {plan, run.settings, run.launch, run.identity, run.data, run.weights, listeners_of(run)});
  measurement.batches = batches_text(run);
  return measurement;
}

}  // namespace zeroplan::cli
