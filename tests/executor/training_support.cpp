#include "tests/executor/training_support.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <mutex>
#include <span>
#include <stdexcept>

#include "executor/device/cpu/cpu_device.hpp"
#include "executor/elements.hpp"
#include "planner/predict/memory.hpp"
#include "planner/program/compile.hpp"
#include "tests/support/plans.hpp"

namespace zeroplan::executor::test {

namespace {

class SequenceBatches : public BatchSource {
 public:
  SequenceBatches(TokenAt tokens, const describe::Plan& plan, std::int64_t data_parallel_rank)
      : tokens_(std::move(tokens)), plan_(plan), rank_(data_parallel_rank) {}

  void next(std::span<std::int32_t> tokens, std::span<std::int32_t> targets) override {
    const std::int64_t step = count_ / plan_.gradient_accumulation;
    const std::int64_t micro_batch =
        rank_ * plan_.gradient_accumulation + count_ % plan_.gradient_accumulation;
    ++count_;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto place = static_cast<std::int64_t>(i);
      const std::int64_t sequence = micro_batch * plan_.micro_batch + place / plan_.sequence;
      tokens[i] = tokens_(step, sequence, place % plan_.sequence);
      targets[i] = tokens_(step, sequence, place % plan_.sequence + 1);
    }
  }

 private:
  TokenAt tokens_;
  const describe::Plan& plan_;
  std::int64_t rank_;
  std::int64_t count_ = 0;
};

class HookedDevice : public Device {
 public:
  HookedDevice(std::unique_ptr<Device> device, KernelHook before, KernelHook after)
      : before_(std::move(before)), after_(std::move(after)), device_(std::move(device)) {}

  std::string name() const override { return device_->name(); }
  std::byte* allocate(Bytes bytes, program::Space space) override { return device_->allocate(bytes, space); }
  void deallocate(std::byte* block, Bytes bytes, program::Space space) override {
    device_->deallocate(block, bytes, space);
  }
  DeviceCapabilities capabilities() const override { return device_->capabilities(); }
  bool executes(program::Op op) const override { return device_->executes(op); }
  void upload(std::byte* to, std::span<const std::byte> from, program::Stream stream) override {
    device_->upload(to, from, stream);
  }
  void download(std::span<std::byte> to, const std::byte* from) override { device_->download(to, from); }
  // The hooks run where the kernel does, beside others: on its stream.
  void execute(const Kernel& kernel, program::Stream stream, const Watch& watch) override {
    const Hooked* hooked = nullptr;
    {
      const std::lock_guard lock(mutex_);
      hooked = &hooked_.emplace_back(Hooked{*this, kernel, stream});
    }
    const auto run = [](void*, const void* what) {
      const auto& [device, launch, on] = *static_cast<const Hooked*>(what);
      if (device.before_) device.before_(launch);
      device.device_->execute(launch, on, {});
      if (device.after_) device.after_(launch);
    };
    device_->run_on_host(stream, {run, nullptr, hooked}, watch);
  }
  Event make_event() override { return device_->make_event(); }
  void record(Event event, program::Stream stream) override { device_->record(event, stream); }
  void wait(program::Stream stream, Event event, double* held) override {
    device_->wait(stream, event, held);
  }
  void synchronize() override { device_->synchronize(); }
  void drain() noexcept override { device_->drain(); }
  void run_on_host(program::Stream stream, const HostWork& work, const Watch& watch) override {
    device_->run_on_host(stream, work, watch);
  }
  Bytes workspace_bytes() const override { return device_->workspace_bytes(); }
  Flops product_flops() const override { return device_->product_flops(); }

 private:
  struct Hooked {
    HookedDevice& device;
    Kernel kernel;
    program::Stream stream;
  };

  KernelHook before_, after_;
  std::deque<Hooked> hooked_;  // as long as a stream may need them
  std::mutex mutex_;
  std::unique_ptr<Device> device_;
};

Bytes total(const Rank& rank, program::GroupKind family) {
  Bytes bytes = 0;
  for (std::size_t i = 0; i < rank.program().groups.size(); ++i) {
    if (family_of(rank.program().groups[i].kind) != family) continue;
    for (const Ledger::Total& entry : rank.data_plane(i).ledger().totals) bytes += entry.bytes;
  }
  return bytes;
}

bool same_result(const StepResult& a, const StepResult& b) {
  return same_bits({a.loss, a.gradient_norm, a.loss_scale}, {b.loss, b.gradient_norm, b.loss_scale}) &&
         a.skipped == b.skipped;
}

program::BufferId buffer_of(const program::UnitPlacement& unit, State state) {
  switch (state) {
    case State::parameter:
      return unit.parameter;
    case State::gradient:
      return unit.gradient;
    case State::master:
      return unit.master;
    case State::momentum:
      return unit.states[0];
    case State::variance:
      break;
  }
  return unit.states[1];
}

bool is_partition(const program::UnitPlacement& unit, State state) {
  if (state == State::parameter) return unit.parameter_is_partition;
  if (state == State::gradient) return unit.gradient_is_partition;
  return unit.is_partitioned();
}

}  // namespace

TokenAt learnable_tokens(std::int64_t vocabulary) {
  return [vocabulary](std::int64_t step, std::int64_t sequence, std::int64_t position) {
    std::int64_t value = (step * 1013 + sequence * 7919) % vocabulary;
    for (std::int64_t k = 0; k < position; ++k) value = (value * 5 + 3) % vocabulary;
    return static_cast<std::int32_t>(value);
  };
}

TokenAt same_every_step(TokenAt tokens) {
  return [tokens = std::move(tokens)](std::int64_t, std::int64_t sequence, std::int64_t position) {
    return tokens(0, sequence, position);
  };
}

std::unique_ptr<Device> hooked_device(std::unique_ptr<Device> device, KernelHook before, KernelHook after) {
  return std::make_unique<HookedDevice>(std::move(device), std::move(before), std::move(after));
}

Training train(const describe::Model& model, const describe::Plan& plan, const TrainingOptions& options) {
  Training training;
  const auto ranks = static_cast<std::size_t>(plan.devices());
  training.high_water.resize(ranks);
  std::vector<std::vector<StepResult>> results(ranks);
  const ParameterValue initial = options.initial ? options.initial : normal_initialization(17, model.layers);
  const TokenAt tokens = options.tokens ? options.tokens : learnable_tokens(model.vocabulary);
  run_ranks(plan.devices(), options.threads, [&](Communicator& start) {
    const std::unique_ptr<Communicator> seen = options.world ? options.world(start) : nullptr;
    Communicator& world = seen ? *seen : start;
    const program::RankPosition position = position_of(world.rank(), plan.tensor_parallel);
    program::StepProgram program = program::compile(model, plan, position);
    const predict::MemoryProfile memory = predict::read_memory(program);
    Rank rank(std::move(program), {memory.peak, memory.host_peak},
              options.device ? options.device(world.rank()) : make_cpu_device({}), world, options.planes);
    rank.initialize(initial, options.loss_scale);
    if (options.visit) options.visit(rank, 0);
    const Bytes data_before = total(rank, program::GroupKind::data_parallel);
    const Bytes tensor_before = total(rank, program::GroupKind::tensor_parallel);
    SequenceBatches batches(tokens, plan, position.data_parallel);
    const auto index = static_cast<std::size_t>(world.rank());
    for (std::int64_t step = 1; step <= options.steps; ++step) {
      StepSettings settings = options.settings;
      if (options.rate) settings.learning_rate = static_cast<float>(options.rate(step));
      results[index].push_back(rank.step(settings, batches));
      if (options.visit) options.visit(rank, step);
    }
    training.high_water[index] = rank.arena().high_water();
    if (index != 0) return;
    training.at_high_water = rank.arena().at_high_water();
    training.data_parallel_bytes = total(rank, program::GroupKind::data_parallel) - data_before;
    training.tensor_parallel_bytes = total(rank, program::GroupKind::tensor_parallel) - tensor_before;
  });
  for (std::size_t r = 1; r < ranks; ++r) {
    for (std::size_t i = 0; i < results[r].size(); ++i) {
      if (same_result(results[r][i], results[0][i])) continue;
      throw std::runtime_error(fmt::format("ranks 0 and {} have different results of step {}", r, i + 1));
    }
  }
  training.results = results[0];
  for (const StepResult& result : training.results) {
    training.losses.push_back(result.loss);
    training.norms.push_back(result.gradient_norm);
  }
  return training;
}

describe::Model tiny_gpt() {
  return describe::read_model_spelling("layers=3,hidden=20,heads=4,head_dim=5,vocab=31,ffn=36");
}

describe::Model tiny_llama() {
  return describe::read_model_spelling(
      "layers=3,hidden=20,heads=4,kv_heads=4,head_dim=6,vocab=29,ffn=28,gated=true");
}

describe::Plan fp32_plan() {
  describe::Plan plan = zeroplan::test::plain_plan();
  plan.precision = describe::Precision::fp32;
  return plan;
}

ParameterValue wide_initialization(std::int64_t layers, float factor) {
  return [factor, normal = normal_initialization(17, layers)](const ParameterElement& element) {
    return normal(element) * (element.name.find("norm") == std::string_view::npos ? factor : 1.0F);
  };
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

float WholeTensor::largest() const {
  float result = 0;
  for (const float value : values) result = std::max(result, std::abs(value));
  return result;
}

WholeModel::WholeModel(const describe::Model& model, const describe::Plan& plan) {
  std::int64_t layer = 0;
  for (const describe::ParameterGroup& group : describe::parameter_groups(model, plan.sequence)) {
    const bool in_layers = group.kind == describe::ParameterGroup::Kind::dense_layer;
    for (std::int64_t i = 0; i < group.layers; ++i) {
      for (const describe::ParameterTensor& tensor : group.tensors) {
        WholeTensor& whole = tensors_[{std::string(tensor.name), in_layers ? layer : 0}];
        whole.outputs = tensor.outputs;
        whole.inputs = tensor.inputs;
        whole.values.resize(static_cast<std::size_t>(tensor.elements()));
        whole.owners.resize(whole.values.size());
      }
      if (in_layers) ++layer;
    }
  }
}

void WholeModel::collect(Rank& rank, State state) {
  const program::StepProgram& program = rank.program();
  const std::scoped_lock lock(mutex_);
  for (const program::TensorPlacement& placement : program.tensors) {
    if (placement.replicated && program.group(program::GroupKind::tensor_parallel).rank != 0) continue;
    const program::UnitPlacement& unit = program.units[placement.unit];
    for (std::int64_t layer = unit.first_layer; layer < unit.first_layer + unit.layers; ++layer) {
      const UnitMemory memory = memory_of(rank, unit, state, layer);
      WholeTensor& whole = tensors_.at({std::string(placement.name), layer});
      for_each_element(placement, layer, [&](const ParameterElement& element, Elements flat) {
        if (flat < memory.own_begin || flat >= memory.own_end) return;
        const float value = load_element(memory.tensor, flat - memory.first);
        if (element.output >= whole.outputs) {
          padding_.push_back(value);
          return;
        }
        const auto index = static_cast<std::size_t>(element.output * whole.inputs + element.input);
        whole.values[index] = value;
        ++whole.owners[index];
      });
    }
  }
}

const std::map<TensorName, WholeTensor>& WholeModel::tensors() const {
  for (const auto& [name, tensor] : tensors_) {
    for (const int owners : tensor.owners) {
      if (owners == 1) continue;
      throw std::runtime_error(
          fmt::format("an element of {} in layer {} has {} owners", name.name, name.layer, owners));
    }
  }
  return tensors_;
}

const WholeTensor& WholeModel::at(const std::string& name, std::int64_t layer) const {
  return tensors().at({name, layer});
}

double WholeModel::sum_of_squares() const {
  double sum = 0;
  for (const auto& [name, tensor] : tensors()) {
    for (const float value : tensor.values) sum += static_cast<double>(value) * static_cast<double>(value);
  }
  return sum;
}

UnitMemory memory_of(Rank& rank, const program::UnitPlacement& unit, State state, std::int64_t layer) {
  UnitMemory memory;
  memory.tensor = rank.interpreter().tensor(buffer_of(unit, state), layer);
  memory.own_begin = rank.program().own_begin(unit);
  const bool is_first = rank.program().replica_group(unit).rank == 0;  // all replicas hold the same
  memory.own_end = memory.own_begin + (is_first ? unit.owned : 0);
  memory.first = is_partition(unit, state) ? memory.own_begin : 0;
  return memory;
}

}  // namespace zeroplan::executor::test
