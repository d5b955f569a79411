#include "planner/program/known_orders.hpp"

#include <algorithm>
#include <array>
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

  void add(std::uint64_t value) { add(value, value); }
  void add(std::uint64_t one, std::uint64_t other) {
    first = std::rotl((first ^ one) * 0xff51afd7ed558ccd, 29);
    second = std::rotl((second + other) * 0xc4ceb9fe1a85ec53, 31);
  }
  // Four words at once: their products do not wait for one another.
  void add(const std::array<std::uint64_t, 4>& words) {
    const std::uint64_t one = mixed(words[0] ^ 0xa0761d6478bd642f, words[1] ^ 0xe7037ed1a0b428db);
    const std::uint64_t other = mixed(words[2] ^ 0x8ebc6af09c88c6e3, words[3] ^ 0x589965cc75374cc3);
    add(one ^ std::rotl(other, 32), one + other);
  }

 private:
  // All 128 bits of the product.
  static std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }
};

struct KeyHash {
  std::size_t operator()(const Key& key) const { return key.first ^ key.first >> 32; }
};

// All that derive_order() looks at.
Key key_of(const StepProgram& program) {
  Key key;
  key.add(program.code.size());
  const std::int64_t slots = slots_of(program);
  for (const Instruction& instruction : program.code) {
    std::array<std::uint64_t, 4> words{static_cast<std::uint64_t>(instruction.op) << 16 |
                                       static_cast<std::uint64_t>(instruction.group) << 8 |
                                       static_cast<std::uint64_t>(instruction.stream)};
    if (instruction.op == Op::repeat) {
      const auto [count, first, step, close] = instruction.dims;
      const std::int64_t walked = step == 0 ? walked_iterations(count, slots) : count;
      key.add({words[0] << 32 | static_cast<std::uint64_t>(close), static_cast<std::uint64_t>(walked),
               static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(step)});
      continue;
    }
    static_assert(sizeof(instruction.operands) == 3 * sizeof(std::uint64_t));
    std::memcpy(words.data() + 1, instruction.operands.data(), sizeof(instruction.operands));
    key.add(words);
  }
  for (const Buffer& buffer : program.buffers) {
    key.add(static_cast<std::uint64_t>(buffer.space) << 48 | std::uint64_t{buffer.parent} << 32 |
                static_cast<std::uint32_t>(buffer.first_layer),
            static_cast<std::uint64_t>(buffer.slots) << 32 | static_cast<std::uint64_t>(buffer.instances));
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
