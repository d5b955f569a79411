#include "planner/program/groups.hpp"

#include <doctest/doctest.h>

#include <map>
#include <set>
#include <vector>

#include "planner/program/compile.hpp"
#include "tests/support/plans.hpp"

using namespace zeroplan;
using namespace zeroplan::program;

namespace {

describe::Plan plan_of(std::int64_t data_parallel, std::int64_t tensor_parallel, int stage) {
  describe::Plan plan = test::plain_plan();
  plan.data_parallel = data_parallel;
  plan.tensor_parallel = tensor_parallel;
  plan.zero_stage = stage;
  return plan;
}

void check(const Group& group, std::int64_t size, std::int64_t rank, std::int64_t stride) {
  CHECK(group.size == size);
  CHECK(group.rank == rank);
  CHECK(group.stride == stride);
}

}  // namespace

TEST_CASE("groups: where rank 13 of 16 stands, by hand") {
  // Two tensor-parallel ranks are neighbours: rank 13 is data-parallel rank 6 and the second of its pair. Shards of four
  // data-parallel ranks: 0 to 3 (ranks 0 to 7) and 4 to 7.
  describe::Plan plan = plan_of(8, 2, 2);
  plan.shard = 4;
  const StepProgram program = compile(test::small_gpt(), plan, {6, 1});
  REQUIRE(program.groups.size() == 4);
  CHECK(program.ranks == 16);
  check(program.group(GroupKind::tensor_parallel), 2, 1, 1);
  check(program.group(GroupKind::data_parallel), 8, 6, 2);
  check(program.group(GroupKind::shard), 4, 2, 2);
  check(program.group(GroupKind::replica), 2, 1, 8);
  CHECK(program.group(GroupKind::tensor_parallel).first_of(13) == 12);
  CHECK(program.group(GroupKind::data_parallel).first_of(13) == 1);
  CHECK(program.group(GroupKind::shard).first_of(13) == 9);
  CHECK(program.group(GroupKind::replica).first_of(13) == 5);
}

TEST_CASE("groups: those of one rank are not there, and stand for this rank alone") {
  const StepProgram program = compile(test::small_gpt(), plan_of(1, 1, 0));
  CHECK(program.groups.empty());
  CHECK(program.find_group(GroupKind::data_parallel) == kNoGroup);
  check(program.group(GroupKind::data_parallel), 1, 0, 1);
}

TEST_CASE("groups: a unit's shard and replicas by stage") {
  const auto units_of = [](int stage, std::int64_t shard) {
    describe::Plan plan = plan_of(8, 1, stage);
    plan.shard = shard;
    return compile(test::small_gpt(), plan);
  };
  const auto kinds = [](const StepProgram& program) {
    const UnitPlacement& unit = program.units.front();
    return std::pair{program.shard_group(unit).size, program.replica_group(unit).size};
  };
  CHECK(kinds(units_of(0, 0)) == std::pair<std::int64_t, std::int64_t>{1, 8});
  for (const int stage : {1, 2, 3}) {
    CHECK(kinds(units_of(stage, 0)) == std::pair<std::int64_t, std::int64_t>{8, 1});
    CHECK(kinds(units_of(stage, 4)) == std::pair<std::int64_t, std::int64_t>{4, 2});
  }
}

TEST_CASE("groups: the ranks of a run agree on who is in which, and a shard and a replica meet in one rank") {
  describe::Plan plan = plan_of(12, 2, 3);
  plan.shard = 4;
  std::map<GroupKind, std::map<std::int64_t, std::set<std::int64_t>>> members;  // by kind, by first rank
  for (std::int64_t rank = 0; rank < 24; ++rank) {
    const StepProgram program = compile(test::small_gpt(), plan, {rank / 2, rank % 2});
    for (const Group& group : program.groups) {
      const std::int64_t first = group.first_of(rank);
      CHECK(first + group.rank * group.stride == rank);
      members[group.kind][first].insert(rank);
    }
  }
  const std::map<GroupKind, std::size_t> sizes = {{GroupKind::tensor_parallel, 2},
                                                  {GroupKind::data_parallel, 12},
                                                  {GroupKind::shard, 4},
                                                  {GroupKind::replica, 3}};
  for (const auto& [kind, groups] : members) {
    CHECK(groups.size() == 24 / sizes.at(kind));
    for (const auto& [first, ranks] : groups) CHECK(ranks.size() == sizes.at(kind));
  }
  for (const auto& [a, shard] : members[GroupKind::shard]) {
    for (const auto& [b, replica] : members[GroupKind::replica]) {
      std::size_t both = 0;
      for (const std::int64_t rank : shard) both += replica.count(rank);
      CHECK(both <= 1);
    }
  }
}
