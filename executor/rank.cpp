#include "executor/rank.hpp"

#include <cmath>

namespace zeroplan::executor {

namespace {

std::unique_ptr<Communicator> split_off(Communicator& world, std::int64_t color, std::int64_t key) {
  std::unique_ptr<Communicator> group = world.split(color, key);
  return group->size() > 1 ? std::move(group) : nullptr;
}

}  // namespace

program::RankPosition position_of(std::int64_t world_rank, std::int64_t tensor_parallel) {
  return {world_rank / tensor_parallel, world_rank % tensor_parallel};
}

Rank::Rank(program::StepProgram program, ArenaSize size, std::unique_ptr<Device> device, Communicator& world)
    : program_(std::move(program)),
      device_(std::move(device)),
      data_parallel_(split_off(world, program_.tensor_parallel.rank, program_.data_parallel.rank)),
      tensor_parallel_(split_off(world, program_.data_parallel.rank, program_.tensor_parallel.rank)),
      arena_(*device_, program_, size),
      interpreter_(program_, *device_, arena_, data_parallel_.get(), tensor_parallel_.get()) {
  interpreter_.setup();
  clear_states(program_, interpreter_);
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
