#include "executor/replicas.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "executor/device/floats.hpp"
#include "executor/elements.hpp"
#include "executor/random.hpp"

namespace zeroplan::executor {

namespace {

using program::GroupKind;
using program::ReplicaCheck;
using program::UnitPlacement;

constexpr Elements kBlock = 1 << 16;  // elements that are looked at together; whole words in every type

std::uint64_t mixed_in(std::uint64_t sum, std::span<const std::byte> bytes) {
  std::uint64_t word = 0;
  std::size_t at = 0;
  for (; at + sizeof word <= bytes.size(); at += sizeof word) {
    std::memcpy(&word, bytes.data() + at, sizeof word);
    sum = mix(sum ^ word);
  }
  word = bytes.size();
  std::memcpy(&word, bytes.data() + at, bytes.size() - at);
  return mix(sum ^ word);
}

// Of one layer of one unit on one rank. Sums are 0 where nothing is held alike.
struct Held {
  std::uint64_t alike = 0;  // with other data-parallel ranks: the whole, or a partition with its replicas
  std::uint64_t replicated = 0;  // with the other tensor-parallel ranks
  std::int64_t off_master = -1;  // index of the first parameter that is not its master; -1: none
};

// The ranks that hold a unit's parameters alike.
program::Group alike_group(const program::StepProgram& program, const UnitPlacement& unit) {
  return unit.parameter_is_partition ? program.replica_group(unit) : program.group(GroupKind::data_parallel);
}

class Sums {
 public:
  explicit Sums(Rank& rank) : rank_(rank), program_(rank.program()) {}

  std::vector<Held> all() {
    std::vector<Held> held;
    for (std::size_t u = 0; u < program_.units.size(); ++u) {
      const UnitPlacement& unit = program_.units[u];
      for (std::int64_t layer = unit.first_layer; layer < unit.first_layer + unit.layers; ++layer) {
        held.push_back(of(u, layer));
      }
    }
    return held;
  }

 private:
  Held of(std::size_t index, std::int64_t layer) {
    const UnitPlacement& unit = program_.units[index];
    const Tensor parameter = rank_.interpreter().tensor(unit.parameter, layer);
    const Elements own = program_.own_begin(unit);
    Held held;
    if (alike_group(program_, unit).size > 1) {
      held.alike = checksum(1, parameter, 0, unit.parameter_is_partition ? unit.owned : unit.elements);
    }
    if (program_.group(GroupKind::tensor_parallel).size > 1) {
      const Elements begin = unit.parameter_is_partition ? own : 0;
      const Elements end = unit.parameter_is_partition ? own + unit.owned : unit.elements;
      for (const program::TensorPlacement& tensor : program_.tensors) {
        if (tensor.unit != index || !tensor.replicated) continue;
        const Elements last = tensor.offset + tensor.copies * tensor.outputs * tensor.inputs;
        const Elements from = std::max(begin, tensor.offset);
        const Elements to = std::min(end, last);
        if (from < to) held.replicated = checksum(held.replicated + 1, parameter, from - begin, to - from);
      }
    }
    if (unit.master != program::kNoBuffer) {
      const Tensor master = rank_.interpreter().tensor(unit.master, layer);
      const Elements first = unit.parameter_is_partition ? 0 : own;
      held.off_master = first_off(parameter, first, master, unit.owned);
    }
    return held;
  }

  // Elements [first, first + count).
  std::span<const std::byte> part_of(const Tensor& tensor, Elements first, Elements count) {
    const Bytes size = program::bytes_of(tensor.type);
    bytes_.resize(static_cast<std::size_t>(count * size));
    rank_.device().download(bytes_, tensor.data + first * size);
    return bytes_;
  }

  std::uint64_t checksum(std::uint64_t sum, const Tensor& tensor, Elements first, Elements count) {
    for (Elements done = 0; done < count; done += kBlock) {
      sum = mixed_in(sum, part_of(tensor, first + done, std::min(kBlock, count - done)));
    }
    return sum;
  }

  std::int64_t first_off(const Tensor& parameter, Elements first, const Tensor& master, Elements count) {
    std::vector<float> values;
    std::uint32_t rounded = 0;
    const Tensor one{reinterpret_cast<std::byte*>(&rounded), parameter.type, 1};
    const auto bytes = static_cast<std::size_t>(program::bytes_of(parameter.type));
    for (Elements done = 0; done < count; done += kBlock) {
      values.resize(static_cast<std::size_t>(std::min(kBlock, count - done)));
      download_floats(rank_.device(), master, done, values);
      const auto held = part_of(parameter, first + done, static_cast<Elements>(values.size()));
      for (std::size_t i = 0; i < values.size(); ++i) {
        store_element(one, 0, values[i]);
        if (std::memcmp(one.data, held.data() + i * bytes, bytes) != 0)
          return done + static_cast<std::int64_t>(i);
      }
    }
    return -1;
  }

  Rank& rank_;
  const program::StepProgram& program_;
  std::vector<std::byte> bytes_;
};

// The layer of every entry of Sums::all(), in words.
std::vector<std::string> places_of(const program::StepProgram& program) {
  std::vector<std::string> places;
  for (std::size_t u = 0; u < program.units.size(); ++u) {
    const UnitPlacement& unit = program.units[u];
    const auto first = std::find_if(program.tensors.begin(), program.tensors.end(),
                                    [u](const program::TensorPlacement& t) { return t.unit == u; });
    for (std::int64_t layer = unit.first_layer; layer < unit.first_layer + unit.layers; ++layer) {
      places.push_back(fmt::format("the vector of layer {} that begins with {}", layer,
                                   first == program.tensors.end() ? "nothing" : first->name));
    }
  }
  return places;
}

}  // namespace

program::ReplicaChecks check_replicas(Rank& rank, ControlPlane& world) {
  const program::StepProgram& program = rank.program();
  const std::vector<Held> own = Sums(rank).all();
  const std::size_t count = own.size();
  const std::vector<Held> all = gathered(world, std::span<const Held>(own));

  const std::vector<std::string> places = places_of(program);
  const program::Group tensor = program.group(GroupKind::tensor_parallel);
  std::vector<program::Group> alike;  // of every entry of Sums::all()
  for (const UnitPlacement& unit : program.units) {
    alike.insert(alike.end(), static_cast<std::size_t>(unit.layers), alike_group(program, unit));
  }
  program::ReplicaChecks checks;
  for (std::int64_t r = 0; r < world.size(); ++r) {
    const auto held = [&](std::int64_t of, std::size_t i) -> const Held& {
      return all[static_cast<std::size_t>(of) * count + i];
    };
    const std::int64_t same_data = tensor.first_of(r);
    const auto compare = [&](ReplicaCheck& check, std::int64_t with, std::uint64_t a, std::uint64_t b,
                             std::size_t i) {
      if (a == 0 && b == 0) return;
      ++check.compared;
      if (a != b && check.difference.empty())
        check.difference = fmt::format("rank {} differs from rank {} in {}", r, with, places[i]);
    };
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t same_model = alike[i].first_of(r);
      if (same_model != r)
        compare(checks.data_parallel, same_model, held(r, i).alike, held(same_model, i).alike, i);
      if (same_data != r)
        compare(checks.tensor_parallel, same_data, held(r, i).replicated, held(same_data, i).replicated, i);
      if (std::any_of(program.units.begin(), program.units.end(),
                      [](const UnitPlacement& unit) { return unit.master != program::kNoBuffer; })) {
        ++checks.masters.compared;
      }
      if (held(r, i).off_master >= 0 && checks.masters.difference.empty()) {
        checks.masters.difference = fmt::format("rank {}: element {} of its part of {} is not its master", r,
                                                held(r, i).off_master, places[i]);
      }
    }
  }
  return checks;
}

}  // namespace zeroplan::executor
