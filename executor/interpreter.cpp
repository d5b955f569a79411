#include "executor/interpreter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <tuple>

#include "executor/error.hpp"
#include "executor/step_scalars.hpp"
#include "planner/instructions/table.hpp"

namespace zeroplan::executor {

using program::BufferId;
using program::Class;
using program::Op;
using program::Phase;
using program::Position;

namespace {

// Of a copy between device and host.
Bytes moved_bytes(const Kernel& copy) { return copy.dims[0] * program::bytes_of(copy.operands[0].type); }

std::size_t first_after_setup(const program::StepProgram& program) {
  const auto first = std::find_if(program.code.begin(), program.code.end(), [](const auto& instruction) {
    return instruction.op == Op::phase && static_cast<Phase>(instruction.dims[0]) != Phase::setup;
  });
  return first == program.code.end() ? 0 : static_cast<std::size_t>(first - program.code.begin());
}

// All but what differs from step to step, and the model, which is the program's.
bool same_constants(const StepSettings& a, const StepSettings& b) {
  const auto constants = [](const StepSettings& s) {
    return std::tie(s.tokens_per_step, s.beta1, s.beta2, s.epsilon, s.weight_decay, s.decayed, s.clip_norm,
                    s.dropout, s.dropout_seed, s.dynamic_loss_scale, s.scale_window);
  };
  return constants(a) == constants(b);
}

}  // namespace

Interpreter::Interpreter(const program::StepProgram& program, Device& device, Arena& arena,
                         const GroupPlanes& groups)
    : program_(program),
      device_(device),
      arena_(arena),
      decay_mask_(program),
      lowering_(program, device, arena, groups, decay_mask_, settings_),
      player_(device, arena),
      first_after_setup_(first_after_setup(program)) {
  clear_profile();
  for (const DataPlane* group : groups) {
    if (!group->capabilities().moves_host_memory || device.capabilities().host_reaches_memory) continue;
    throw DeviceError(
        fmt::format("ranks that move memory of the host cannot move that of {}", device.name()));
  }
  settings_.model = program.constants;
  runs_beside_ = device.capabilities().runs_beside &&
                 std::all_of(groups.begin(), groups.end(),
                             [](const DataPlane* group) { return group->capabilities().runs_beside; });
}

void Interpreter::clear_profile() {
  profile_ = {};
  profile_.of_instruction.resize(program_.code.size());
}

void Interpreter::setup() {
  const LoweredStep setup = lowering_.lower(0, first_after_setup_, {.beside = false, .with_memory = true});
  player_.prepare(setup);
  player_.play(setup, nullptr);
}

void Interpreter::lower(const StepSettings& settings) {
  const LoweringForm form{.beside = runs_beside_ && !arena_.observing(), .with_memory = arena_.observing()};
  if (step_ && form == form_ && same_constants(settings, settings_)) return;
  settings_ = settings;
  settings_.model = program_.constants;
  step_ = lowering_.lower(first_after_setup_, program_.code.size(), form);
  form_ = form;
  player_.prepare(*step_);
}

void Interpreter::step(const StepSettings& given, BatchSource& batches) {
  lower(given);
  const StepScalars scalars = step_scalars_of(given);
  device_.upload(scalars_from(static_cast<program::Scalar>(kFirstStepScalar)),
                 std::as_bytes(std::span(scalars)), program::Stream::compute);
  player_.play(*step_, &batches);
  add_times();
}

void Interpreter::add_times() {
  const std::span<const float> seconds = player_.seconds();
  for_each_play(*step_, [&](const Command& command, std::size_t number) {
    Profile::Time& time = profile_.of_instruction[command.instruction];
    ++time.calls;
    time.seconds += static_cast<double>(seconds[number]);
    if (command.kind == Command::Kind::transfer && command.stream == program::Stream::compute)
      profile_.waited_for_traffic_seconds += static_cast<double>(seconds[number]);
    if (command.kind != Command::Kind::kernel) return;
    const Kernel& kernel = step_->kernels[command.what];
    const Class kind = program::class_of(kernel.op);
    if (kind == Class::to_device) profile_.to_device_bytes += moved_bytes(kernel);
    if (kind == Class::to_host) profile_.to_host_bytes += moved_bytes(kernel);
  });
  profile_.waited_for_traffic_seconds += player_.waited_for_traffic_seconds();
}

std::vector<Interpreter::Call> Interpreter::calls(std::size_t group) const {
  std::vector<Call> calls;
  if (!step_) return calls;
  for_each_play(*step_, [&](const Command& command, std::size_t number) {
    if (command.kind == Command::Kind::transfer && step_->transfers[command.what].group == group)
      calls.push_back({command.instruction, player_.seconds()[number]});
  });
  return calls;
}

std::string Interpreter::text_of(const Position& at) const {
  const std::string_view op = program::name_of(program_.code[at.instruction].op);
  const std::string layer = at.layer < 0 ? "" : fmt::format(" of layer {}", at.layer);
  return fmt::format("{}{} in {}", op, layer, program::name_of(at.phase));
}

std::string Interpreter::position_text() const { return text_of(position()); }

std::string Interpreter::finished_text() const {
  std::string text;
  for (const auto& [stream, at] : player_.finished()) {
    text += fmt::format("{}{} on {}", text.empty() ? "" : ", ", text_of(at), program::name_of(stream));
  }
  return text.empty() ? "nothing" : text;
}

Tensor Interpreter::tensor(BufferId buffer, std::int64_t layer) const {
  return arena_.tensor(buffer, program_.buffers[buffer].instance_of(layer));
}

std::byte* Interpreter::scalars_from(program::Scalar first) const {
  return lowering_.scalars().data + static_cast<std::size_t>(first) * sizeof(float);
}

float Interpreter::scalar(program::Scalar scalar) const {
  float value = 0;
  device_.download(std::as_writable_bytes(std::span(&value, 1)), scalars_from(scalar));
  return value;
}

void Interpreter::set_scalar(program::Scalar scalar, float value) {
  device_.upload(scalars_from(scalar), std::as_bytes(std::span(&value, 1)), program::Stream::compute);
}

}  // namespace zeroplan::executor
