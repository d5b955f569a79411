#include "executor/storage/held.hpp"

#include <algorithm>

#include "executor/device/floats.hpp"

namespace zeroplan::executor {

using program::BufferId;
using program::kNoBuffer;
using program::UnitPlacement;

namespace {

constexpr Elements kBlock = 1 << 16;

// What a buffer holds of a vector: all of it, or the rank's partition without its padding.
Held held_in(const UnitPlacement& unit, const Tensor& tensor, bool is_partition,
             const program::StepProgram& program) {
  if (!is_partition) return {tensor, 0, unit.elements};
  const Elements begin = std::min(unit.elements, program.own_begin(unit));
  return {tensor, begin, std::min(unit.elements, begin + unit.partition)};
}

}  // namespace

std::int64_t states_of(const UnitPlacement& unit) {
  return std::count_if(unit.states.begin(), unit.states.end(),
                       [](BufferId state) { return state != kNoBuffer; });
}

void for_each_vector(const program::StepProgram& program,
                     const std::function<void(const HeldVector&)>& visit) {
  for (std::size_t u = 0; u < program.units.size(); ++u) {
    const UnitPlacement& unit = program.units[u];
    for (std::int64_t layer = unit.first_layer; layer < unit.first_layer + unit.layers; ++layer) {
      for (std::int64_t state = -1; state < states_of(unit); ++state) visit({u, layer, state});
    }
  }
}

Held as_computed(const HeldVector& vector, Rank& rank) {
  const UnitPlacement& unit = rank.program().units[vector.unit];
  return held_in(unit, rank.interpreter().tensor(unit.parameter, vector.layer), unit.parameter_is_partition,
                 rank.program());
}

Held most_exact(const HeldVector& vector, Rank& rank) {
  const UnitPlacement& unit = rank.program().units[vector.unit];
  const BufferId buffer =
      vector.state >= 0 ? unit.states[static_cast<std::size_t>(vector.state)] : unit.master;
  if (buffer == kNoBuffer) return as_computed(vector, rank);
  return held_in(unit, rank.interpreter().tensor(buffer, vector.layer), unit.is_partitioned(),
                 rank.program());
}

std::pair<Elements, Elements> own_share(const Held& held, const HeldVector& vector,
                                        const program::StepProgram& program) {
  const UnitPlacement& unit = program.units[vector.unit];
  const Elements first = std::min(unit.elements, program.own_begin(unit));
  const Elements last =
      unit.is_partitioned() ? std::min(unit.elements, first + unit.partition) : unit.elements;
  const program::Group replicas = program.replica_group(unit);
  const Elements share = div_ceil(last - first, replicas.size);
  const Elements begin = std::min(last, first + replicas.rank * share);
  return {std::max(held.begin, begin), std::min({held.end, last, begin + share})};
}

void write_blocks(Device& device, const Held& held, const Strip& strip, std::vector<float>& block,
                  const std::function<void(Elements done, std::span<const float> values)>& visit) {
  for (Elements done = 0; done < strip.count; done += kBlock) {
    block.resize(static_cast<std::size_t>(std::min(kBlock, strip.count - done)));
    const Elements first = strip.flat - held.begin + done;
    download_floats(device, held.tensor, first, block);
    visit(done, block);
  }
}

}  // namespace zeroplan::executor
