#include "executor/calibration/probe.hpp"

#include <utility>

#include "executor/batches.hpp"
#include "executor/rank.hpp"

namespace zeroplan::executor {

namespace {

constexpr std::uint64_t kSeed = 1;

std::vector<double> seconds_of(const Profile& profile) {
  std::vector<double> seconds;
  seconds.reserve(profile.of_instruction.size());
  for (const Profile::Time& time : profile.of_instruction) {
    seconds.push_back(time.calls > 0 ? time.seconds / static_cast<double>(time.calls) : 0);
  }
  return seconds;
}

}  // namespace

ProbeTimes run_probe(Probe probe, std::unique_ptr<Device> device, Communicator& world) {
  probe.batches.data_parallel_rank = probe.plan.program.data_parallel.rank;
  Rank rank(std::move(probe.plan.program), probe.plan.arena, std::move(device), world);
  rank.initialize(normal_initialization(kSeed, rank.program().layers), probe.loss_scale);
  const std::unique_ptr<BatchSource> batches = seeded_batches(probe.batches, probe.vocabulary, kSeed);
  ProbeTimes times;
  for (std::int64_t i = 0; i < probe.warm_up + probe.repeats; ++i) {
    rank.interpreter().clear_profile();
    world.barrier();
    rank.step(probe.settings, *batches);
    if (i >= probe.warm_up) times.repeats.push_back(seconds_of(rank.interpreter().profile()));
  }
  times.workspace_bytes = rank.device().workspace_bytes();
  return times;
}

}  // namespace zeroplan::executor
