#include "cli/live_run.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <memory>

#include "cli/ranks.hpp"
#include "cli/signals.hpp"
#include "cli/step_progress.hpp"
#include "executor/modules.hpp"
#include "executor/process_memory.hpp"
#include "executor/training.hpp"
#include "planner/program/compile.hpp"
#include "reports/approximations.hpp"
#include "reports/numbers.hpp"
#include "reports/validation_stream.hpp"

namespace zeroplan::cli {
namespace {

using executor::Communicator;
using executor::Launch;

constexpr std::int64_t kMostThreadRanks = 1024;
constexpr Bytes kThreadStackBytes = 10 * kMiB;  // glibc takes 8 by default, and some beside them

// Ranks that share this host's memory and processors.
std::int64_t ranks_here(const describe::Plan& plan, const Launch& launch) {
  if (launch.kind == Launch::Kind::threads) return plan.devices();
  return launch.local_ranks > 0 ? launch.local_ranks : launch.ranks;
}

int threads_of_rank(const LiveRun& run) {
  if (run.settings.threads > 0) return run.settings.threads;
  return threads_of_one_of(ranks_here(run.plan, run.launch));
}

// What it did in words; empty where it did nothing. On the thread of the rank.
std::string pin_rank(const LiveRun& run, std::int64_t rank) {
  const bool threads = run.launch.kind == Launch::Kind::threads;
  // Who does not know how many ranks this host has cannot tell which cores are its own.
  if (!run.settings.pin || (!threads && run.launch.local_ranks == 0)) return {};
  return executor::pin_to_share({.index = threads ? rank : run.launch.local_rank,
                                 .count = ranks_here(run.plan, run.launch),
                                 .threads = threads_of_rank(run)});
}

// Without a limit, the system promises more memory than there is, and ends a process that uses it.
void limit_memory(const LiveRun& run) {
  const bool threads = run.launch.kind == Launch::Kind::threads;
  const Bytes share = describe::host_memory_bytes() / (threads ? 1 : ranks_here(run.plan, run.launch));
  // The limit counts stacks as if they were used: those of a rank, of its heartbeat, and of its device.
  const Bytes stacks = (threads ? run.plan.devices() : 1) * (threads_of_rank(run) + 2) * kThreadStackBytes;
  rlimit limit{};
  if (::getrlimit(RLIMIT_DATA, &limit) != 0) return;
  limit.rlim_cur = std::min(limit.rlim_max, static_cast<rlim_t>(executor::data_bytes() + share + stacks));
  ::setrlimit(RLIMIT_DATA, &limit);
}

executor::TrainingJob job_of(const LiveRun& run) {
  const describe::Plan& plan = run.plan;
  const LiveSettings& settings = run.settings;
  executor::TrainingJob job;
  job.tensor_parallel = plan.tensor_parallel;
  const executor::ArenaSize arena{run.prediction.memory.peak, run.prediction.memory.host_peak,
                                  plan.contiguous_memory, true, plan.engine.alignment_bytes};
  job.plan = [&run, arena](program::RankPosition position) {
    return executor::RankPlan{program::compile(run.model, run.plan, position), arena};
  };
  const executor::DeviceOptions device{.threads = threads_of_rank(run)};
  job.device = [device] { return executor::make_device("cpu", device); };
  job.batches.sequence = plan.sequence;
  job.batches.micro_batch = plan.micro_batch;
  job.batches.gradient_accumulation = plan.gradient_accumulation;
  job.batches.data_parallel = plan.data_parallel;
  job.vocabulary = run.model.vocabulary;
  job.data = {run.data, settings.seed, settings.shuffle};
  job.seed = settings.seed;
  job.rate = settings.rate;
  job.settings.learning_rate = static_cast<float>(settings.learning_rate);
  job.settings.weight_decay = static_cast<float>(settings.weight_decay);
  job.settings.decayed = settings.decayed;
  job.settings.beta1 = static_cast<float>(settings.beta1);
  job.settings.beta2 = static_cast<float>(settings.beta2);
  job.settings.epsilon = static_cast<float>(settings.epsilon);
  job.settings.clip_norm = static_cast<float>(settings.clip_norm);
  if (plan.precision == describe::Precision::fp16) {
    job.settings.dynamic_loss_scale = true;
    job.settings.scale_window = settings.loss_scale_window;
    job.loss_scale = static_cast<float>(settings.loss_scale);
  }
  job.warm_up_steps = settings.warm_up;
  job.measured_steps = settings.steps;
  job.save = settings.save;
  job.resume = settings.resume;
  job.weights = run.weights;
  job.export_to = settings.export_to;
  job.export_names = program::huggingface_names(run.model, plan.sequence);
  job.signal = EndAfterStep::signal;
  job.identity = {{"model", run.model.name},
                  {"parameters", fmt::format("{}", run.prediction.program.parameters)},
                  {"dtype", std::string(describe::name_of(plan.precision))},
                  {"optimizer", plan.optimizer.name}};
  const auto progress = run.progress == nullptr
                            ? nullptr
                            : std::make_shared<StepProgress>(*run.progress, run.prediction,
                                                             job.warm_up_steps + job.measured_steps);
  job.stepped = [progress, record = run.record](const program::StepMeasurement& step) {
    if (progress != nullptr) progress->step(step);
    if (record != nullptr) record->write(reports::step_line(step));
  };
  if (progress != nullptr) job.still_running = [progress](const std::string& line) { progress->say(line); };
  return job;
}

}  // namespace

std::optional<std::string> cannot_run(const describe::Model& model, const describe::Plan& plan,
                                      const program::StepProgram& program) {
  if (plan.engine.arithmetic_only) {
    return fmt::format("the engine {} is arithmetic, and no program that runs: it predicts only",
                       plan.engine.name);
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
  if (plan.tensor_parallel > 1 && model.query_key_norm != describe::QueryKeyNorm::none) {
    return "norms over query and key heads that tensor-parallel ranks share are planned, but not run yet; "
           "they are with tp 1";
  }
  if (plan.tensor_parallel > model.kv_heads) {
    return "key-value heads that tensor-parallel ranks share are planned, but not run yet; tp up to the "
           "key-value heads is";
  }
  if (plan.dropout) return "dropout is planned, but not run yet; use --dropout=off";
  if (plan.optimizer.name != "adam" && plan.optimizer.name != "sgd" &&
      plan.optimizer.name != "sgd-momentum") {
    return fmt::format("the optimizer {} is planned, but not run yet; adam, sgd and sgd-momentum are",
                       plan.optimizer.name);
  }
  return std::nullopt;
}

std::optional<std::string> too_large_here(const predict::Prediction& prediction, const describe::Plan& plan,
                                          const Launch& launch) {
  const std::int64_t ranks = ranks_here(plan, launch);
  if (launch.kind == Launch::Kind::threads && ranks > kMostThreadRanks) {
    return fmt::format("{} ranks as threads of one process; the most is {}", ranks, kMostThreadRanks);
  }
  const Bytes needed = ranks * (prediction.memory.peak + prediction.memory.host_peak);
  const Bytes here = describe::host_memory_bytes();
  if (needed <= here) return std::nullopt;
  return fmt::format("the {} of this machine need {} bytes, and it has {}", reports::counted(ranks, "rank"),
                     reports::thousands(needed), reports::thousands(here));
}

std::shared_ptr<const executor::TokenFile> open_data(const LiveSettings& settings,
                                                     const describe::Model& model,
                                                     const describe::Plan& plan) {
  if (settings.data.empty()) return nullptr;
  auto file = std::make_shared<const executor::TokenFile>(settings.data, settings.data_type);
  executor::BatchShape shape;
  shape.sequence = plan.sequence;
  executor::make_batches({file, settings.seed, settings.shuffle}, shape, model.vocabulary);
  return file;
}

std::shared_ptr<const executor::WeightFiles> open_weights(const LiveSettings& settings,
                                                          const describe::Model& model,
                                                          const describe::Plan& plan) {
  const auto names = program::huggingface_names(model, plan.sequence);
  Problems problems;
  for (const auto& [option, file] :
       {std::pair{"--weights", settings.weights}, {"--export", settings.export_to}}) {
    if (file.empty() || names) continue;
    problems.add(
        {option, 0, "",
         fmt::format("the Hugging Face names of {} are not known; those of the shapes of GPT-2, Llama, "
                     "Mistral and Qwen2 are",
                     model.name)});
  }
  problems.throw_if_any();
  if (settings.weights.empty()) return nullptr;
  return std::make_shared<const executor::WeightFiles>(settings.weights, *names);
}

program::Measurement run_live(const LiveRun& run) {
  limit_memory(run);
  const executor::TrainingJob job = job_of(run);
  const EndAfterStep ending(run.progress != nullptr);
  program::Measurement measurement;
  std::string pinned;
  const auto rank_main = [&](Communicator& world) {
    const std::string own = pin_rank(run, world.rank());
    program::Measurement of_rank = executor::train(job, world);
    if (world.rank() == 0 || run.launch.kind != Launch::Kind::threads) {
      measurement = std::move(of_rank);
      pinned = own;
    }
  };
  run_as_launched(run.launch, run.plan.devices(), run.settings.timeout, run.identity, run.progress,
                  rank_main);
  if (run.weights == nullptr && run.settings.resume.empty()) {
    measurement.drawn = {run.model.vocabulary, run.model.hidden};
  }
  measurement.launch = text_of(run.launch.kind);
  measurement.device =
      fmt::format("{}, {} each{}{}", measurement.device, reports::counted(threads_of_rank(run), "thread"),
                  pinned.empty() ? "" : ", ", pinned);
  measurement.batches =
      run.data == nullptr ? fmt::format("seed {}", run.settings.seed)
                          : fmt::format("{} ({} of type {}{})", run.settings.data,
                                        reports::counted(run.data->tokens(), "token"),
                                        name_of(run.data->type()), run.settings.shuffle ? ", shuffled" : "");
  return measurement;
}

}  // namespace zeroplan::cli
