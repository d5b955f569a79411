#include "executor/rank.hpp"

#include <cmath>
#include <utility>

namespace zeroplan::executor {

namespace {

using Groups = std::vector<std::unique_ptr<Communicator>>;

Groups split_off(ControlPlane& world, const program::StepProgram& program) {
  Groups groups;
  groups.reserve(program.groups.size());
  for (const program::Group& group : program.groups) {
    groups.push_back(world.split(group.first_of(world.rank()), group.rank));
  }
  return groups;
}

GroupPlanes data_planes_of(const Rank& rank, std::size_t groups) {
  GroupPlanes planes;
  planes.reserve(groups);
  for (std::size_t group = 0; group < groups; ++group) planes.push_back(&rank.data_plane(group));
  return planes;
}

program::DeviceMemoryUse memory_of(const Device& device, const ReadDeviceMemory& read) {
  return read ? read(device) : device.memory_use();
}

void set_activity(const Groups& groups, const Activity& activity) {
  for (const auto& group : groups) group->set_activity(activity);
}

}  // namespace

program::RankPosition position_of(std::int64_t world_rank, std::int64_t tensor_parallel) {
  return {world_rank / tensor_parallel, world_rank % tensor_parallel};
}

Rank::Rank(program::StepProgram program, ArenaSize size, std::unique_ptr<Device> device, ControlPlane& world,
           const MakeDataPlanes& planes, const ReadDeviceMemory& read_memory)
    : program_(std::move(program)),
      device_(std::move(device)),
      groups_(split_off(world, program_)),
      arena_(*device_, program_, size),
      with_arena_(memory_of(*device_, read_memory)),
      planes_(planes ? planes(world, *device_, program_.groups) : DataPlanes{}),
      with_planes_(memory_of(*device_, read_memory)),
      interpreter_(program_, *device_, arena_, data_planes_of(*this, groups_.size())) {
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
