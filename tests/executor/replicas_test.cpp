#include "executor/replicas.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "executor/batches.hpp"
#include "executor/communicator/threads/thread_communicator.hpp"
#include "executor/device/cpu/cpu_device.hpp"
#include "planner/predict/memory.hpp"
#include "planner/program/compile.hpp"
#include "tests/executor/training_support.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;

namespace {

using Damage = std::function<void(Rank&, std::int64_t world_rank)>;

// Trains a step, lets `damage` change what ranks hold, and compares.
program::ReplicaChecks checks_of(const describe::Plan& plan, const Damage& damage) {
  const describe::Model model = test::tiny_gpt();
  program::ReplicaChecks of_first;
  run_ranks(plan.devices(), ThreadOptions{}, [&](Communicator& world) {
    program::StepProgram program =
        program::compile(model, plan, position_of(world.rank(), plan.tensor_parallel));
    const predict::MemoryProfile memory = predict::read_memory(program);
    Rank rank(std::move(program), {memory.peak, memory.host_peak}, make_cpu_device({}), world);
    rank.initialize(normal_initialization(1, model.layers));
    const auto batches =
        seeded_batches({.sequence = plan.sequence,
                        .micro_batch = plan.micro_batch,
                        .data_parallel = plan.data_parallel,
                        .data_parallel_rank = rank.program().group(program::GroupKind::data_parallel).rank},
                       model.vocabulary, 1);
    StepSettings settings;
    settings.learning_rate = 1e-2F;
    rank.step(settings, *batches);
    damage(rank, world.rank());
    const program::ReplicaChecks checks = check_replicas(rank, world);
    if (world.rank() == 0) of_first = checks;
  });
  return of_first;
}

void no_damage(Rank&, std::int64_t) {}

// Changes one bit of an element of a tensor in layer 1, on one rank.
Damage flip(std::int64_t on, std::string_view name) {
  return [on, name](Rank& rank, std::int64_t world_rank) {
    if (world_rank != on) return;
    const auto& tensors = rank.program().tensors;
    const auto found =
        std::find_if(tensors.begin(), tensors.end(), [&](const auto& tensor) { return tensor.name == name; });
    REQUIRE(found != tensors.end());
    const Tensor parameter = rank.interpreter().tensor(rank.program().units[found->unit].parameter, 1);
    parameter.data[found->offset * program::bytes_of(parameter.type)] ^= std::byte{1};
  };
}

constexpr const char* kMatrix = "attention.query.weight";
constexpr const char* kShared = "attention_norm.weight";

}  // namespace

TEST_CASE("whole parameters of data-parallel ranks are compared at the stages that have them") {
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    describe::Plan plan = test::fp32_plan();
    plan.data_parallel = 3;
    plan.zero_stage = stage;
    const program::ReplicaChecks alike = checks_of(plan, no_damage);
    CHECK((alike.data_parallel.compared > 0) == (stage < 3));
    CHECK(alike.data_parallel.difference.empty());
    CHECK(alike.tensor_parallel.compared == 0);
    if (stage == 3) continue;
    const program::ReplicaChecks apart = checks_of(plan, flip(2, kMatrix));
    CHECK(apart.data_parallel.difference.find("rank 2 differs from rank 0 in the vector of layer 1") == 0);
  }
}

TEST_CASE("what tensor-parallel ranks hold alike is compared, and what they divide is not") {
  for (const int stage : {0, 3}) {
    CAPTURE(stage);
    describe::Plan plan = test::fp32_plan();
    plan.tensor_parallel = 2;
    plan.data_parallel = stage == 0 ? 1 : 2;
    plan.zero_stage = stage;
    const program::ReplicaChecks alike = checks_of(plan, no_damage);
    CHECK(alike.tensor_parallel.compared > 0);
    CHECK(alike.tensor_parallel.difference.empty());
    if (stage != 0) continue;
    CHECK(checks_of(plan, flip(1, kMatrix)).tensor_parallel.difference.empty());
    CHECK(checks_of(plan, flip(1, kShared)).tensor_parallel.difference.find("rank 1 differs from rank 0") ==
          0);
  }
}

TEST_CASE("a parameter that is not its master rounded is found on the rank that owns it") {
  describe::Plan plan = test::fp32_plan();
  plan.precision = describe::Precision::bf16;
  plan.data_parallel = 2;
  for (const int stage : {1, 2, 3}) {
    CAPTURE(stage);
    plan.zero_stage = stage;
    const program::ReplicaChecks alike = checks_of(plan, no_damage);
    CHECK(alike.masters.compared > 0);
    CHECK(alike.masters.difference.empty());
    // The first element of the vector is rank 0's.
    CHECK(checks_of(plan, flip(0, kMatrix)).masters.difference.find("rank 0: element 0 of its part") == 0);
  }
}
