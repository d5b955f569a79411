#include "executor/calibration/timed_program.hpp"

#include <utility>

#include "executor/batches.hpp"
#include "executor/rank.hpp"
#include "executor/waiting.hpp"

namespace zeroplan::executor {

namespace {

constexpr std::uint64_t kSeed = 1;

// Of one call each: what all of them took, and `waiting`, of all of them.
void add_repeat(InstructionSeconds& times, const Profile& profile, std::vector<double> waiting) {
  std::vector<double> seconds;
  seconds.reserve(waiting.size());
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    const Profile::Time& time = profile.of_instruction[i];
    const double calls = time.calls > 0 ? static_cast<double>(time.calls) : 1;
    seconds.push_back(time.seconds / calls);
    waiting[i] /= calls;
  }
  times.repeats.push_back(std::move(seconds));
  times.waiting.push_back(std::move(waiting));
}

}  // namespace

InstructionSeconds time_program(TimedProgram timed, std::unique_ptr<Device> device, Communicator& world) {
  timed.batches.data_parallel_rank = world.rank();
  Rank rank(std::move(timed.plan.program), timed.plan.arena, std::move(device), world, timed.planes);
  rank.initialize(normal_initialization(kSeed, rank.program().layers), timed.loss_scale);
  const std::unique_ptr<BatchSource> batches = seeded_batches(timed.batches, timed.vocabulary, kSeed);
  InstructionSeconds times;
  for (std::int64_t i = 0; i < timed.warm_up + timed.repeats; ++i) {
    rank.interpreter().clear_profile();
    world.barrier();
    rank.step(timed.settings, *batches);
    if (i < timed.warm_up) continue;
    std::vector<double> waiting(rank.program().code.size());
    add_waiting(waiting, rank);
    add_repeat(times, rank.interpreter().profile(), std::move(waiting));
  }
  times.workspace_bytes = rank.device().workspace_bytes();
  times.beside_buffers_bytes = rank.device().memory_use().used - rank.with_arena().used;
  return times;
}

}  // namespace zeroplan::executor
