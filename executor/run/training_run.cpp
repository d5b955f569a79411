#include "executor/run/training_run.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "executor/modules.hpp"
#include "executor/process_memory.hpp"
#include "executor/run/ranks.hpp"
#include "planner/error.hpp"

namespace zeroplan::executor {
namespace {

constexpr Bytes kThreadStackBytes = 10 * kMiB;  // glibc takes 8 by default, and some beside them

bool has_threads(const TrainingRun& run) { return run.launch.kind == Launch::Kind::threads; }

std::int64_t ranks_here(const TrainingRun& run) { return ranks_here(run.launch, run.plan.ranks()); }

int threads_of_rank(const TrainingRun& run) {
  return run.settings.threads > 0 ? run.settings.threads : threads_of_one_of(ranks_here(run));
}

// What it did in words; empty where it did nothing. On the thread of the rank.
std::string pin_rank(const TrainingRun& run, std::int64_t rank) {
  // Who does not know how many ranks this host has cannot tell which cores are its own.
  if (!run.settings.pin || (!has_threads(run) && run.launch.local_ranks == 0)) return {};
  return pin_to_share({.index = has_threads(run) ? rank : run.launch.local_rank,
                       .count = ranks_here(run),
                       .threads = threads_of_rank(run)});
}

// Without a limit, the system promises more memory than there is, and ends a process that uses it.
void limit_memory(const TrainingRun& run) {
  const Bytes share = run.plan.host_memory_bytes / (has_threads(run) ? 1 : ranks_here(run));
  // The limit counts stacks as if they were used: those of a rank, of its heartbeat, and of its device.
  const Bytes stacks =
      (has_threads(run) ? run.plan.ranks() : 1) * (threads_of_rank(run) + 2) * kThreadStackBytes;
  rlimit limit{};
  if (::getrlimit(RLIMIT_DATA, &limit) != 0) return;
  limit.rlim_cur = std::min(limit.rlim_max, static_cast<rlim_t>(data_bytes() + share + stacks));
  ::setrlimit(RLIMIT_DATA, &limit);
}

StepSettings step_settings(const TrainingRun& run) {
  const RunSettings& settings = run.settings;
  StepSettings step;
  step.learning_rate = static_cast<float>(settings.learning_rate);
  step.weight_decay = static_cast<float>(settings.weight_decay);
  step.decayed = settings.decayed;
  step.beta1 = static_cast<float>(settings.beta1);
  step.beta2 = static_cast<float>(settings.beta2);
  step.epsilon = static_cast<float>(settings.epsilon);
  step.clip_norm = static_cast<float>(settings.clip_norm);
  step.dropout = static_cast<float>(settings.dropout);
  step.dropout_seed = settings.seed;
  if (run.plan.scales_loss) {
    step.dynamic_loss_scale = true;
    step.scale_window = settings.loss_scale_window;
  }
  return step;
}

TrainingJob job_of(const TrainingRun& run) {
  const RunSettings& settings = run.settings;
  TrainingJob job;
  job.tensor_parallel = run.plan.tensor_parallel;
  job.plan = [&plan = run.plan](program::RankPosition position) {
    return RankPlan{plan.program(position), plan.arena};
  };
  job.batches = run.plan.batches;
  job.vocabulary = run.plan.vocabulary;
  job.data = {run.data, settings.seed, settings.shuffle};
  job.seed = settings.seed;
  job.settings = step_settings(run);
  job.rate = settings.rate;
  if (run.plan.scales_loss) job.loss_scale = static_cast<float>(settings.loss_scale);
  job.warm_up_steps = settings.warm_up;
  job.measured_steps = settings.steps;
  job.resume = settings.resume;
  job.weights = run.weights;
  job.save = settings.save;
  job.export_to = settings.export_to;
  job.export_names = run.plan.weight_names;
  job.identity = run.plan.identity;
  job.stepped = run.listeners.stepped;
  job.still_running = run.listeners.say;
  job.signal = run.listeners.signal;
  return job;
}

}  // namespace

std::shared_ptr<const TokenFile> open_data(const RunSettings& settings, const RunPlan& plan) {
  if (settings.data.empty()) return nullptr;
  auto file = std::make_shared<const TokenFile>(settings.data, settings.data_type);
  BatchShape shape;
  shape.sequence = plan.batches.sequence;
  make_batches({file, settings.seed, settings.shuffle}, shape, plan.vocabulary);
  return file;
}

std::shared_ptr<const WeightFiles> open_weights(const RunSettings& settings, const RunPlan& plan) {
  Problems problems;
  for (const auto& [option, file] :
       {std::pair{"--weights", settings.weights}, {"--export", settings.export_to}}) {
    if (file.empty() || plan.weight_names) continue;
    problems.add(
        {option, 0, "",
         fmt::format("the Hugging Face names of {} are not known; those of the shapes of GPT-2, Llama, "
                     "Mistral and Qwen2 are",
                     plan.model)});
  }
  problems.throw_if_any();
  if (settings.weights.empty()) return nullptr;
  return std::make_shared<const WeightFiles>(settings.weights, *plan.weight_names);
}

namespace {

// The device of a rank, of several of a kind.
int index_of(const TrainingRun& run, std::int64_t rank) {
  if (run.settings.device_index >= 0) return run.settings.device_index;
  return static_cast<int>(has_threads(run) ? rank : run.launch.local_rank);
}

// Whether all ranks are on one GPU: threads, and the GPU has a number.
bool share_card(const TrainingRun& run) {
  return run.settings.device == "cuda" && run.settings.device_index >= 0 && has_threads(run) &&
         run.plan.ranks() > 1;
}

// What a rank's part of the run is on.
TrainingJob on_device(TrainingJob job, const TrainingRun& run, std::int64_t rank) {
  const std::string& name = run.settings.device;
  DeviceOptions device{.threads = threads_of_rank(run), .index = index_of(run, rank)};
  const bool uses_nccl = name == "cuda" && run.plan.ranks() > 1 && !share_card(run);
  if (uses_nccl && run.plan.arena.contiguous) device.source = nccl_module_blocks();
  job.device = [name, device] { return make_device(name, device); };
  if (share_card(run)) {
    job.ranks_of_device = run.plan.ranks();
    job.planes = make_shared_card_module_planes;
  } else if (uses_nccl) {
    job.planes = [timeout = run.settings.timeout](ControlPlane& world, Device& own,
                                                  std::span<const program::Group> groups) {
      return make_nccl_module_planes(world, own, groups, timeout);
    };
  }
  return job;
}

}  // namespace

program::Measurement run_training(const TrainingRun& run) {
  // A driver takes addresses that it never fills.
  if (run.settings.device == "cpu") limit_memory(run);
  const TrainingJob job = job_of(run);
  program::Measurement measurement;
  std::string pinned;
  const auto rank_main = [&](Communicator& world) {
    const std::string own = pin_rank(run, world.rank());
    program::Measurement of_rank = train(on_device(job, run, world.rank()), world);
    if (world.rank() == 0 || !has_threads(run)) {
      measurement = std::move(of_rank);
      pinned = own;
    }
  };
  run_as_launched(
      run.launch,
      {run.plan.ranks(), run.settings.timeout, run.identity, run.listeners.stalled, run.listeners.refused},
      rank_main);
  if (run.weights == nullptr && run.settings.resume.empty()) {
    measurement.drawn = {run.plan.vocabulary, run.plan.hidden};
  }
  measurement.launch = text_of(run.launch.kind);
  const int threads = threads_of_rank(run);
  measurement.device = fmt::format("{}, {} thread{} each{}{}", measurement.device, threads,
                                   threads == 1 ? "" : "s", pinned.empty() ? "" : ", ", pinned);
  return measurement;
}

}  // namespace zeroplan::executor
