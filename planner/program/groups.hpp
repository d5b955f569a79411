#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// The groups of ranks that collectives run over, as data: which there are is the plan's affair, and whoever reads or
// runs a program asks it of the group.
namespace zeroplan::program {

enum class GroupKind : std::uint8_t {
  tensor_parallel,  // the ranks that hold one layer together
  data_parallel,    // all ranks with the same part of the model
  shard,            // hybrid sharding: of these, those that hold one copy of what ZeRO partitions
  replica,          // and those that hold the same part of every copy
  secondary_shard,  // hpZ of ZeRO++: those that hold a second copy of the parameters, inside a node
};
inline constexpr std::size_t kGroupKinds = 5;
std::string_view name_of(GroupKind kind);

// The parallelism that a group serves: data parallelism has several kinds of groups.
constexpr GroupKind family_of(GroupKind kind) {
  return kind == GroupKind::tensor_parallel ? kind : GroupKind::data_parallel;
}

// A group as one of its ranks sees it: `size` ranks of the run, `stride` apart, of which this is the one with index
// `rank`.
struct Group {
  GroupKind kind = GroupKind::data_parallel;
  std::int64_t size = 1;
  std::int64_t rank = 0;
  std::int64_t stride = 1;

  // The first rank of the run in that group of this kind which has `run_rank`.
  std::int64_t first_of(std::int64_t run_rank) const { return run_rank - run_rank / stride % size * stride; }
};

// At most so many groups of more than one rank are in a program.
inline constexpr std::size_t kMostGroups = kGroupKinds;

}  // namespace zeroplan::program
