#include "planner/program/known_orders.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <unordered_map>

#include "planner/program/order.hpp"

namespace zeroplan::program {
namespace {

// Two hashes, so that no two programs of a run will ever share both.
struct Key {
  std::uint64_t first = 0x9e3779b97f4a7c15, second = 0xc2b2ae3d27d4eb4f;

  bool operator==(const Key&) const = default;

  void add(std::uint64_t value) {
    first = std::rotl((first ^ value) * 0xff51afd7ed558ccd, 29);
    second = std::rotl((second + value) * 0xc4ceb9fe1a85ec53, 31);
  }
};

struct KeyHash {
  std::size_t operator()(const Key& key) const { return key.first ^ key.first >> 32; }
};

// All that derive_order() looks at.
Key key_of(const StepProgram& program) {
  Key key;
  key.add(program.code.size());
  for (const Instruction& instruction : program.code) {
    key.add(static_cast<std::uint64_t>(instruction.op) << 16 |
            static_cast<std::uint64_t>(instruction.group) << 8 |
            static_cast<std::uint64_t>(instruction.stream));
    if (instruction.op == Op::repeat) {
      for (const std::int64_t dim : instruction.dims) key.add(static_cast<std::uint64_t>(dim));
      continue;
    }
    static_assert(sizeof(instruction.operands) == 3 * sizeof(std::uint64_t));
    std::uint64_t operands[3];
    std::memcpy(operands, instruction.operands.data(), sizeof(operands));
    for (const std::uint64_t word : operands) key.add(word);
  }
  for (const Buffer& buffer : program.buffers) {
    key.add(static_cast<std::uint64_t>(buffer.space) << 48 | std::uint64_t{buffer.parent} << 32 |
            static_cast<std::uint32_t>(buffer.first_layer));
    key.add(static_cast<std::uint64_t>(buffer.instances));
  }
  for (const UnitPlacement& unit : program.units) {
    if (!unit.is_layer) continue;
    key.add(static_cast<std::uint64_t>(unit.first_layer));
    key.add(static_cast<std::uint64_t>(unit.layers));
  }
  return key;
}

}  // namespace

void set_order(StepProgram& program) {
  constexpr std::size_t kMostKnown = 4096;  // of a few kB each
  thread_local std::unordered_map<Key, Order, KeyHash> known;
  const Key key = key_of(program);
  const auto found = known.find(key);
  if (found != known.end()) {
    program.order = found->second;
    return;
  }
  derive_order(program);
  if (known.size() == kMostKnown) known.clear();
  known.emplace(key, program.order);
}

}  // namespace zeroplan::program
