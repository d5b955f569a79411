#include "executor/training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "executor/control.hpp"
#include "executor/error.hpp"
#include "executor/machine/gpu_watch.hpp"
#include "executor/process_memory.hpp"
#include "executor/replicas.hpp"
#include "executor/storage/while_meeting.hpp"
#include "executor/waiting.hpp"

namespace zeroplan::executor {

namespace {

using program::CollectiveCount;
using program::Measurement;
using program::MemoryPoint;
using program::RankMeasurement;
using program::StepMeasurement;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Says on its own thread where a step is that takes long.
class Heartbeat {
 public:
  Heartbeat(const TrainingJob& job, const Interpreter& interpreter)
      : job_(job), interpreter_(interpreter), thread_([this] { run(); }) {}
  ~Heartbeat() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
  }
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  void begin_step(std::int64_t step) { begin(step, false); }
  void begin_saving(std::int64_t step) { begin(step, true); }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, job_.heartbeat, [this] { return ended_; })) {
      const double seconds = seconds_since(start_);
      if (step_ == 0 || seconds < std::chrono::duration<double>(job_.heartbeat).count()) continue;
      const std::string what = saves_ ? "saving the state" : interpreter_.position_text();
      job_.still_running(fmt::format("step {}: {}, for {:.0f} s", step_, what, seconds));
    }
  }

  void begin(std::int64_t step, bool saves) {
    const std::lock_guard lock(mutex_);
    step_ = step;
    saves_ = saves;
    start_ = Clock::now();
  }

  const TrainingJob& job_;
  const Interpreter& interpreter_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::int64_t step_ = 0;
  bool saves_ = false;
  Clock::time_point start_ = Clock::now();
  bool ended_ = false;
  std::jthread thread_;
};

// Of a group's collectives; a program has no messages between two ranks.
void add_traffic(RankMeasurement& measurement, std::size_t group, const DataPlane& ranks, std::int64_t sign) {
  for (const program::Op op : program::kCollectiveOps) {
    const TransferKind kind = kind_of(op);
    const std::size_t index = program::collective_index(op);
    measurement.moved[group][index] += sign * ranks.moved().of(kind);
    for (const Ledger::Total& total : ranks.ledger().totals) {
      if (total.kind != kind) continue;
      CollectiveCount& count = measurement.collectives[group][index];
      count.calls += sign * total.calls;
      count.bytes += sign * total.bytes;
    }
  }
}

// What the ledgers and the device have counted so far, with a sign: two calls around a step leave its part.
void add_totals(RankMeasurement& measurement, Rank& rank, int sign) {
  for (std::size_t i = 0; i < rank.program().groups.size(); ++i)
    add_traffic(measurement, i, rank.data_plane(i), sign);
  measurement.product_flops += sign * rank.device().product_flops();
  measurement.to_host_bytes += sign * rank.interpreter().profile().to_host_bytes;
  measurement.to_device_bytes += sign * rank.interpreter().profile().to_device_bytes;
}

void measure_memory(RankMeasurement& measurement, Rank& rank) {
  const Arena& arena = rank.arena();
  measurement.device_block_bytes = arena.reserved(program::Space::device);
  measurement.host_block_bytes = arena.reserved(program::Space::host);
  measurement.device_zone_bytes = arena.zone_bytes(program::Space::device);
  measurement.device_peak_bytes = arena.high_water().device;
  measurement.host_peak_bytes = arena.high_water().host;
  measurement.at_device_peak = arena.at_high_water();
  measurement.at_host_peak = arena.at_host_high_water();
  measurement.written_at_device_peak = arena.written_at_high_water();
  measurement.written_at_host_peak = arena.written_at_host_high_water();
  measurement.peak_position = rank.interpreter().peak_position();
  measurement.workspace_bytes = rank.device().workspace_bytes();
  measurement.process = process_number();
  measurement.host = host_number();
}

// The step, with errors that say where they happened.
StepResult checked_step(const StepSettings& settings, Rank& rank, BatchSource& batches, std::int64_t step) {
  const auto where = [&] { return fmt::format("step {}, {}", step, rank.interpreter().position_text()); };
  try {
    return rank.step(settings, batches);
  } catch (const DeviceError& error) {
    // A device may not know more than how far it came.
    throw DeviceError(
        fmt::format("{}: {} (finished last: {})", where(), error.what(), rank.interpreter().finished_text()));
  } catch (const CommunicationError& error) {
    throw CommunicationError(fmt::format("{}: {}", where(), error.what()));
  }
}

// A barrier, with when this rank came and when it left.
program::Meeting meet(ControlPlane& world) {
  const auto now = [] { return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(); };
  program::Meeting meeting;
  meeting.came = now();
  world.barrier();
  meeting.left = now();
  return meeting;
}

// Alike instructions together, in the order of the program.
std::vector<program::InstructionTime> times_of(const program::StepProgram& step, const Profile& profile,
                                               const std::vector<double>& waiting) {
  std::vector<program::InstructionTime> times;
  for (std::size_t i = 0; i < step.code.size(); ++i) {
    const Profile::Time& time = profile.of_instruction[i];
    if (time.calls == 0) continue;
    const program::Instruction& instruction = step.code[i];
    const std::optional<program::GroupKind> group = step.kind_of(instruction);
    auto same = std::find_if(times.begin(), times.end(), [&](const program::InstructionTime& t) {
      return t.op == instruction.op && t.group == group;
    });
    if (same == times.end()) {
      same = times.insert(same, {.op = instruction.op, .group = group});
    }
    same->calls += time.calls;
    same->seconds += time.seconds;
    same->waiting_seconds += waiting[i];
  }
  return times;
}

// Where a run that is resumed begins; `order` is that of its data.
RunPosition resumed(const TrainingJob& job, const std::string& order, Rank& rank, ControlPlane& world) {
  const RunPosition saved = load_checkpoint(job.resume, job.identity, rank, world);
  if (saved.data.order != order && world.rank() == 0 && job.still_running) {
    job.still_running(
        fmt::format("the checkpoint is of other data ({}): this run begins at the first sequence of "
                    "its own ({})",
                    saved.data.order, order));
  }
  return {saved.steps, {saved.data.resumed_in(order), order}};
}

// Before any rank of the device takes some: that memory runs out in the middle would say less.
void require_room(const TrainingJob& job, const ArenaSize& arena, const Device& device,
                  const program::DeviceMemoryUse& use) {
  const Bytes needed = job.ranks_of_device * arena.device;
  if (use.total == 0 || needed <= use.total - use.used) return;
  throw NotPossible(fmt::format(
      "{}: the buffers of {} need {} bytes, and {} of its {} bytes are free; zeroplan fit with --hw says "
      "what "
      "would fit a GPU",
      device.name(),
      job.ranks_of_device == 1 ? "a rank" : fmt::format("{} ranks that share it", job.ranks_of_device),
      needed, use.total - use.used, use.total));
}

}  // namespace

Measurement train(const TrainingJob& job, Communicator& world) {
  const program::RankPosition position = position_of(world.rank(), job.tensor_parallel);
  RankPlan plan = job.plan(position);
  std::unique_ptr<Device> device = job.device();
  std::array<program::DeviceMemoryUse, program::kMemoryPoints> memory;
  const auto memory_at = [&](MemoryPoint point) -> auto& { return memory[static_cast<std::size_t>(point)]; };
  GpuWatch watch(device->pci_address());
  const auto memory_of = [&watch](const Device& of) {
    program::DeviceMemoryUse use = of.memory_use();
    watch.add_memory(use);
    return use;
  };
  memory_at(MemoryPoint::opened) = memory_of(*device);
  require_room(job, plan.arena, *device, memory_at(MemoryPoint::opened));
  std::array<program::Meeting, program::kMeetings> meetings;
  // Ranks that are threads share a process: none may take memory before all have read what it had.
  meetings[0] = meet(world);
  reset_peak_resident();
  const Bytes resident_before = resident_bytes();
  meetings[1] = meet(world);

  Measurement measurement;
  measurement.ranks = world.size();
  measurement.device = device->name();
  measurement.note = device->note();
  measurement.gpu_note = watch.problem();
  measurement.ranks_of_device = job.ranks_of_device;
  Rank rank(std::move(plan.program), plan.arena, std::move(device), world, job.planes, memory_of);
  memory_at(MemoryPoint::arena) = rank.with_arena();
  memory_at(MemoryPoint::communicators) = rank.with_planes();
  if (!rank.program().groups.empty()) measurement.exchange = rank.data_plane(0).text();
  BatchShape shape = job.batches;
  shape.data_parallel_rank = position.data_parallel;
  RunPosition begin{0, {0, job.data.order(shape.sequence)}};
  if (!job.resume.empty()) {
    begin = resumed(job, begin.data.order, rank, world);
  } else if (job.weights) {
    while_meeting(world,
                  [&](const std::stop_token&) { rank.initialize(job.weights->values(), job.loss_scale); });
  } else {
    // A norm multiplies with 1, of which the model's constants may hold a part.
    const auto norm_weight = static_cast<float>(1 - rank.program().constants.norm_weight_offset);
    rank.initialize(normal_initialization(job.seed, rank.program().layers, norm_weight), job.loss_scale);
  }
  if (!job.resume.empty() || job.weights) {
    // What was mapped of files is no part of the run.
    world.barrier();
    reset_peak_resident();
    world.barrier();
  }
  shape.first_sequence = begin.data.sequences;
  const std::unique_ptr<BatchSource> batches = make_batches(job.data, shape, job.vocabulary);
  RateSchedule rate = job.rate;
  if (rate.steps == 0) rate.steps = rank.steps() + job.warm_up_steps + job.measured_steps;

  std::optional<Heartbeat> heartbeat;
  if (world.rank() == 0 && job.still_running) heartbeat.emplace(job, rank.interpreter());
  Saver saver(job.save, [&](const SavedFile& file, std::int64_t steps) {
    if (heartbeat) heartbeat->begin_saving(steps);
    const std::int64_t sequences = begin.data.sequences + (steps - begin.steps) * shape.global_batch();
    save_checkpoint(file, job.identity, {steps, {sequences, begin.data.order}}, rank, world);
    if (world.rank() == 0) remove_old_states(job.save, steps);
  });

  RankMeasurement own;
  std::vector<double> waiting(rank.program().code.size());
  {
    const std::int64_t steps = job.warm_up_steps + job.measured_steps;
    for (std::int64_t i = 0; i < steps; ++i) {
      StepMeasurement step;
      step.step = begin.steps + i + 1;
      step.warm_up = i < job.warm_up_steps;
      if (step.warm_up || i == job.warm_up_steps) rank.interpreter().clear_profile();
      if (i == job.warm_up_steps) watch.begin();
      own = {};  // of the last step, whichever it will be
      add_totals(own, rank, -1);
      if (heartbeat) heartbeat->begin_step(step.step);
      const Clock::time_point start = Clock::now();
      StepSettings settings = job.settings;
      settings.learning_rate = static_cast<float>(
          rate_at(rate, static_cast<double>(job.settings.learning_rate), rank.steps() + 1));
      const StepResult result = checked_step(settings, rank, *batches, step.step);
      // A rank that ends its step later is waited for here, so within the step's time.
      const Control control = agreed({job.signal ? job.signal() : 0, saver.is_time()}, world);
      step.seconds = seconds_since(start);
      rank.arena().end_observation();
      if (i == 0) memory_at(MemoryPoint::first_step) = memory_of(rank.device());
      add_totals(own, rank, 1);
      step.loss = static_cast<double>(result.loss);
      step.gradient_norm = static_cast<double>(result.gradient_norm);
      step.learning_rate = static_cast<double>(settings.learning_rate);
      step.loss_scale = static_cast<double>(result.loss_scale);
      step.skipped = result.skipped;
      step.peak_bytes = rank.arena().high_water().device;
      measurement.steps.push_back(step);
      if (!step.warm_up) add_waiting(waiting, rank);
      if (world.rank() == 0 && job.stepped) job.stepped(step);
      saver.after_step(step.step, control.saves);
      measurement.interrupted_by = control.signal;
      if (control.signal != 0) break;
    }
  }
  own.gpu = watch.end();
  memory_at(MemoryPoint::last_step) = memory_of(rank.device());
  meetings[2] = meet(world);
  own.meetings = meetings;
  own.device_memory = memory;
  // Elsewhere the plan's memory is no part of the process.
  if (rank.device().capabilities().host_reaches_memory)
    own.process_growth_bytes = peak_resident_bytes() - resident_before;
  rank.arena().check_held();
  measure_memory(own, rank);
  const Profile& profile = rank.interpreter().profile();
  measurement.times = times_of(rank.program(), profile, waiting);
  measurement.waited_for_traffic_seconds = profile.waited_for_traffic_seconds;
  measurement.of_rank = gathered(world, own);
  measurement.replicas = check_replicas(rank, world);
  const std::int64_t taken = begin.steps + measurement.steps.taken();
  saver.finish(taken);
  if (!job.export_to.empty()) {
    if (heartbeat) heartbeat->begin_saving(taken);
    export_weights(job.export_to, job.export_names.value(), rank, world);
  }
  return measurement;
}

}  // namespace zeroplan::executor
