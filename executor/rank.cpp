#include "executor/rank.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace zeroplan::executor {

namespace {

using Groups = std::array<std::unique_ptr<Communicator>, program::kGroups>;

// Which ranks of the world form which group of a program.
Groups groups_of(const program::StepProgram& program, ControlPlane& world) {
  const std::int64_t data_parallel = program.data_parallel.rank;
  const std::int64_t tensor_parallel = program.tensor_parallel.rank;
  Groups groups;
  const auto split_off = [&](program::Group group, std::int64_t color, std::int64_t key) {
    std::unique_ptr<Communicator> ranks = world.split(color, key);
    if (ranks->size() > 1) groups[static_cast<std::size_t>(group)] = std::move(ranks);
  };
  split_off(program::Group::data_parallel, tensor_parallel, data_parallel);
  split_off(program::Group::tensor_parallel, data_parallel, tensor_parallel);
  return groups;
}

GroupPlanes data_planes_of(const Groups& groups) {
  GroupPlanes planes{};
  std::transform(groups.begin(), groups.end(), planes.begin(), [](const auto& group) { return group.get(); });
  return planes;
}

void set_activity(const Groups& groups, const Activity& activity) {
  for (const auto& group : groups) {
    if (group != nullptr) group->set_activity(activity);
  }
}

}  // namespace

program::RankPosition position_of(std::int64_t world_rank, std::int64_t tensor_parallel) {
  return {world_rank / tensor_parallel, world_rank % tensor_parallel};
}

Rank::Rank(program::StepProgram program, ArenaSize size, std::unique_ptr<Device> device, ControlPlane& world)
    : program_(std::move(program)),
      device_(std::move(device)),
      groups_(groups_of(program_, world)),
      arena_(*device_, program_, size),
      interpreter_(program_, *device_, arena_, data_planes_of(groups_)) {
  set_activity(groups_, [this] { return interpreter_.position_text(); });
  interpreter_.setup();
  clear_states(program_, interpreter_);
}

// What is said of this rank later is where it was last.
Rank::~Rank() {
  set_activity(groups_, [text = interpreter_.position_text()] { return text; });
}

void Rank::initialize(const ParameterValue& value, float loss_scale) {
  initialize_parameters(program_, interpreter_, value);
  interpreter_.set_scalar(program::Scalar::loss_scale, loss_scale);
  steps_ = 0;
}

StepResult Rank::step(StepSettings settings, BatchSource& batches) {
  settings.step = steps_ + 1;
  settings.tokens_per_step = program_.tokens_per_step;
  StepResult result;
  result.loss_scale = interpreter_.scalar(program::Scalar::loss_scale);
  interpreter_.step(settings, batches);
  result.loss = interpreter_.scalar(program::Scalar::loss);
  result.gradient_norm = std::sqrt(interpreter_.scalar(program::Scalar::squared_norm));
  result.skipped = interpreter_.scalar(program::Scalar::overflow) > 0;
  if (!result.skipped) ++steps_;
  return result;
}

}  // namespace zeroplan::executor
