#include "executor/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>

#include "executor/device/floats.hpp"
#include "executor/error.hpp"
#include "executor/storage/held.hpp"
#include "executor/storage/placement.hpp"
#include "executor/storage/require_tensors.hpp"
#include "executor/storage/while_meeting.hpp"
#include "planner/error.hpp"

namespace zeroplan::executor {

namespace {

using program::BufferId;
using program::Scalar;
using program::UnitPlacement;

constexpr std::string_view kVersionKey = "zeroplan_checkpoint";
constexpr std::int64_t kVersion = 2;
constexpr std::int64_t kMostSteps = 1'000'000'000'000;
constexpr std::int64_t kMostSequences = 1'000'000'000'000'000;
constexpr Bytes kElementBytes = sizeof(float);

// The tensors of a file in their order, and where those of a vector begin.
struct Contents {
  std::vector<TensorEntry> tensors;
  std::vector<std::size_t>
      of_tensor;  // by index into StepProgram::tensors: its first entry, of its first layer
  std::vector<std::size_t> of_layer;  // and how many entries further that of the next layer is

  // The entry of a tensor in a vector.
  std::size_t entry(const program::StepProgram& program, const HeldVector& vector, std::size_t tensor) const {
    const std::int64_t layer = vector.layer - program.units[vector.unit].first_layer;
    return of_tensor[tensor] + static_cast<std::size_t>(layer) * of_layer[tensor] +
           static_cast<std::size_t>(vector.state + 1);
  }
};

// By unit, layer and tensor: the weights, then each state.
Contents contents_of(const program::StepProgram& program) {
  Contents contents;
  contents.of_tensor.resize(program.tensors.size());
  contents.of_layer.resize(program.tensors.size());
  for (std::size_t u = 0; u < program.units.size(); ++u) {
    const UnitPlacement& unit = program.units[u];
    for (std::int64_t layer = unit.first_layer; layer < unit.first_layer + unit.layers; ++layer) {
      const std::size_t begin = contents.tensors.size();
      for (std::size_t t = 0; t < program.tensors.size(); ++t) {
        const program::TensorPlacement& tensor = program.tensors[t];
        if (tensor.unit != u) continue;
        if (layer == unit.first_layer) contents.of_tensor[t] = contents.tensors.size();
        const std::string name = whole_name(program, tensor, layer);
        contents.tensors.push_back({.name = name, .shape = whole_shape(tensor)});
        for (std::int64_t state = 0; state < states_of(unit); ++state) {
          const BufferId buffer = unit.states[static_cast<std::size_t>(state)];
          contents.tensors.push_back({.name = fmt::format("{}/{}", name, program.buffers[buffer].name),
                                      .shape = whole_shape(tensor)});
        }
      }
      for (std::size_t t = 0; t < program.tensors.size(); ++t) {
        if (program.tensors[t].unit == u) contents.of_layer[t] = contents.tensors.size() - begin;
      }
    }
  }
  return contents;
}

void write_vector(const HeldVector& vector, Rank& rank, const Contents& contents, TensorSink& sink) {
  const program::StepProgram& program = rank.program();
  const Held held = most_exact(vector, rank);
  const auto [begin, end] = own_share(held, vector, program);
  std::vector<float> block;
  for_each_strip(program, vector.unit, begin, end, [&](const Strip& strip) {
    if (program.tensors[strip.tensor].replicated && !program.speaks_for_replicated()) return;
    const std::size_t entry = contents.entry(program, vector, strip.tensor);
    write_blocks(rank.device(), held, strip, block, [&](Elements done, std::span<const float> values) {
      sink.write(entry, strip.whole + done, values);
    });
  });
}

void read_vector(const HeldVector& vector, const Held& held, Rank& rank, const MappedTensorFile& file,
                 const Contents& contents) {
  const program::StepProgram& program = rank.program();
  FloatWriter writer(rank.device(), held.tensor);
  for_each_strip(program, vector.unit, held.begin, held.end, [&](const Strip& strip) {
    const std::string& name = contents.tensors[contents.entry(program, vector, strip.tensor)].name;
    const std::byte* from = file.data(*file.find(name)) + strip.whole * kElementBytes;
    const Elements first = strip.flat - held.begin;
    for (Elements i = 0; i < strip.count; ++i) {
      writer.put(first + i, load_float(from + i * kElementBytes, program::DataType::fp32));
    }
  });
}

// Reads what the metadata says, and refuses what cannot be.
class State {
 public:
  explicit State(const MappedTensorFile& file) : file_(file) {}

  [[noreturn]] void refuse(std::string_view key, const std::string& why) const {
    throw ConfigurationError(Problem{file_.path(), 0, std::string(key), why});
  }

  const std::string& text(std::string_view key) const {
    const auto found = file_.metadata().find(key);
    if (found == file_.metadata().end()) refuse(key, "is missing");
    return found->second;
  }

  template <class Number>
  Number number(std::string_view key, Number least, Number most) const {
    const std::string& found = text(key);
    Number value{};
    const auto [end, error] = std::from_chars(found.data(), found.data() + found.size(), value);
    // Not a number is below and above nothing.
    const bool inside = value >= least && value <= most;
    if (error != std::errc() || end != found.data() + found.size() || !inside) {
      refuse(key,
             fmt::format("found {}, expected a number from {} to {}", zeroplan::quoted(found), least, most));
    }
    return value;
  }

  void require_version() const {
    if (!file_.metadata().contains(kVersionKey)) {
      refuse("", "is a file of tensors, but no checkpoint of zeroplan");
    }
    const auto version = number<std::int64_t>(kVersionKey, 0, INT32_MAX);
    if (version == kVersion) return;
    refuse(kVersionKey,
           fmt::format("found format {}, this version of zeroplan reads format {} only", version, kVersion));
  }

  void require_same(const TrainingIdentity& identity) const {
    Problems problems;
    for (const auto& [key, expected] : identity) {
      const std::string& found = text(key);
      if (found == expected) continue;
      problems.add(
          {file_.path(), 0, key,
           fmt::format("found {}, expected {}", zeroplan::quoted(found), zeroplan::quoted(expected))});
    }
    problems.throw_if_any();
  }

 private:
  const MappedTensorFile& file_;
};

void require_contents(const MappedTensorFile& file, const Contents& contents) {
  Problems problems;
  std::vector<std::string> present;
  for (const TensorEntry& tensor : file.tensors()) {
    present.push_back(tensor.name);
    if (tensor.type != program::DataType::fp32) problems.add({file.path(), 0, tensor.name, "is not F32"});
  }
  for (const auto& [name, dtype] : file.others()) problems.add({file.path(), 0, name, "is not F32"});
  compare_tensors(
      file.path(), contents.tensors, [&](std::string_view name) { return file.find(name); }, present,
      problems);
  problems.throw_if_any();
}

}  // namespace

void save_checkpoint(const SavedFile& file, const TrainingIdentity& identity, const RunPosition& position,
                     Rank& rank, ControlPlane& world) {
  const Contents contents = contents_of(rank.program());
  Metadata metadata(identity.begin(), identity.end());
  metadata.emplace(kVersionKey, fmt::format("{}", kVersion));
  metadata.emplace("steps", fmt::format("{}", position.steps));
  metadata.emplace("sequences", fmt::format("{}", position.data.sequences));
  metadata.emplace("data", position.data.order);
  metadata.emplace("updates", fmt::format("{}", rank.steps()));
  metadata.emplace("loss_scale", fmt::format("{}", rank.interpreter().scalar(Scalar::loss_scale)));
  metadata.emplace("good_steps", fmt::format("{}", rank.interpreter().scalar(Scalar::good_steps)));
  save_tensors(file, contents.tensors, std::move(metadata), world, [&](TensorSink& sink) {
    for_each_vector(rank.program(),
                    [&](const HeldVector& vector) { write_vector(vector, rank, contents, sink); });
  });
}

RunPosition load_checkpoint(const std::string& path, const TrainingIdentity& identity, Rank& rank,
                            ControlPlane& world) {
  const MappedTensorFile file(path);
  const State state(file);
  state.require_version();
  state.require_same(identity);
  const Contents contents = contents_of(rank.program());
  require_contents(file, contents);
  require_undamaged(file, world);

  RunPosition position;
  position.steps = state.number<std::int64_t>("steps", 0, kMostSteps);
  position.data = {state.number<std::int64_t>("sequences", 0, kMostSequences), state.text("data")};
  rank.set_steps(state.number<std::int64_t>("updates", 0, position.steps));
  constexpr float kLargest = std::numeric_limits<float>::max();
  rank.interpreter().set_scalar(
      Scalar::loss_scale, state.number<float>("loss_scale", std::numeric_limits<float>::min(), kLargest));
  rank.interpreter().set_scalar(Scalar::good_steps, state.number<float>("good_steps", 0, kLargest));
  while_meeting(world, [&](const std::stop_token& stop) {
    for_each_vector(rank.program(), [&](const HeldVector& vector) {
      if (stop.stop_requested()) return;
      read_vector(vector, most_exact(vector, rank), rank, file, contents);
      if (vector.state < 0) read_vector(vector, as_computed(vector, rank), rank, file, contents);
    });
  });
  return position;
}

}  // namespace zeroplan::executor
