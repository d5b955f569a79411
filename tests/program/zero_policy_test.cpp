#include "planner/program/zero_policy.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "planner/program/compile.hpp"
#include "tests/support/plans.hpp"

using namespace zeroplan;
using namespace zeroplan::program;
using describe::Offload;

namespace {

// The policy of a plan over the units of a small model, to be asked point by point.
struct Asked {
  describe::Plan plan;
  StepProgram program;
  Units units;
  Builder builder{program, 1};
  ZeroPolicy zero;

  explicit Asked(const describe::Plan& of_plan)
      : plan(of_plan),
        program(groups_of(of_plan)),
        units(make_units(test::small_gpt(), plan, partitions_of(plan), {})),
        zero(builder, plan, units.units, true) {}

  const Unit& layer() const { return units.units.at(1); }

  // What `body` emits, "all_gather over shard, copy ..."; memory left out.
  std::string emitted(const std::function<void()>& body) {
    const std::size_t begin = program.code.size();
    body();
    std::string text;
    for (std::size_t i = begin; i < program.code.size(); ++i) {
      const Instruction& instruction = program.code[i];
      if (is_memory(instruction.op) || !is_executed(instruction.op)) continue;
      if (!text.empty()) text += ", ";
      text += name_of(instruction.op);
      if (const auto kind = program.kind_of(instruction)) text += " over " + std::string(name_of(*kind));
    }
    return text;
  }

 private:
  static StepProgram groups_of(const describe::Plan& plan) {
    StepProgram program;
    program.groups = compile(test::small_gpt(), plan).groups;
    program.layers = test::small_gpt().layers;
    return program;
  }
};

describe::Plan over_four(int stage, std::int64_t shard = 0) {
  describe::Plan plan = test::plain_plan();
  plan.data_parallel = 4;
  plan.zero_stage = stage;
  plan.shard = shard;
  return plan;
}

}  // namespace

// Sections 5 and 7 of the ZeRO paper.
TEST_CASE("policy: what is reduced after a unit's backward, by stage") {
  const auto reduced = [](const describe::Plan& plan, bool last) {
    Asked asked(plan);
    return asked.emitted([&] { asked.zero.reduce(asked.layer(), last); });
  };
  CHECK(reduced(over_four(0), false).empty());
  CHECK(reduced(over_four(0), true) == "all_reduce over data_parallel");
  CHECK(reduced(over_four(1), false).empty());
  CHECK(reduced(over_four(1), true) == "reduce_scatter over data_parallel");
  for (const int stage : {2, 3}) {
    for (const bool last : {false, true})
      CHECK(reduced(over_four(stage), last) == "reduce_scatter over data_parallel, accumulate");
  }
  CHECK(reduced(over_four(1, 2), false).empty());
  CHECK(reduced(over_four(1, 2), true) == "reduce_scatter over shard, all_reduce over replica");
  CHECK(reduced(over_four(3, 2), false) == "reduce_scatter over shard, accumulate");
  CHECK(reduced(over_four(3, 2), true) == "reduce_scatter over shard, accumulate, all_reduce over replica");
  describe::Plan each = over_four(3, 2);
  each.engine.edit().sums_replicas_each_micro_batch = true;
  for (const bool last : {false, true})
    CHECK(reduced(each, last) == "reduce_scatter over shard, all_reduce over replica, accumulate");
  describe::Plan alone = over_four(0);
  alone.data_parallel = 1;
  CHECK(reduced(alone, true).empty());
  describe::Plan offloaded = over_four(2);
  offloaded.offload = Offload::optimizer;
  CHECK(reduced(offloaded, true) == "reduce_scatter over data_parallel, accumulate_host");
}

TEST_CASE("policy: what makes a unit's weights whole, by stage") {
  using Pass = ZeroPolicy::Pass;
  const auto gathered = [](const describe::Plan& plan, Pass pass) {
    Asked asked(plan);
    return asked.emitted([&] { asked.zero.gather(asked.layer(), 0, pass); });
  };
  for (const int stage : {0, 1, 2}) CHECK(gathered(over_four(stage), Pass::forward).empty());
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    CHECK(gathered(over_four(3), pass) == "all_gather over data_parallel");
    CHECK(gathered(over_four(3, 2), pass) == "all_gather over shard");
  }
  describe::Plan second = over_four(3);
  second.secondary_shard = 2;
  CHECK(gathered(second, Pass::forward) == "all_gather over data_parallel, copy");
  CHECK(gathered(second, Pass::backward) == "all_gather over secondary_shard");
  describe::Plan offloaded = over_four(3);
  offloaded.offload = Offload::all;
  CHECK(gathered(offloaded, Pass::forward) == "copy_to_device, all_gather over data_parallel");
  describe::Plan fsdp = over_four(3);
  fsdp.precision = describe::Precision::bf16;
  fsdp.engine = describe::find_engine("fsdp2");
  CHECK(gathered(fsdp, Pass::forward) == "copy, all_gather over data_parallel");
}

TEST_CASE("policy: which buffers are partitions, by stage") {
  for (const std::int64_t shard : {0, 2}) {
    for (const int stage : {0, 1, 2, 3}) {
      if (stage == 0 && shard > 0) continue;
      CAPTURE(stage);
      CAPTURE(shard);
      const Asked asked(over_four(stage, shard));
      const Unit& layer = asked.layer();
      const std::int64_t ranks = stage == 0 ? 1 : shard > 0 ? shard : 4;
      const Elements part = div_ceil(layer.elements, ranks), whole = part * ranks;
      const auto elements = [&](BufferId buffer) { return asked.program.buffers.at(buffer).elements; };
      CHECK(elements(layer.states[0]) == part);
      CHECK(elements(layer.gradient) == (stage >= 2 ? part : whole));
      CHECK(elements(layer.parameter) == (stage == 3 ? part : whole));
      CHECK(layer.gradient_is_partition == (stage >= 2));
      CHECK(layer.parameter_is_partition == (stage == 3));
      CHECK(elements(layer.weights) == whole);
      CHECK(elements(layer.weight_gradients) == whole);
    }
  }
}

TEST_CASE("policy: the step sums what ranks have parts of, updates, and gathers what it updated") {
  const auto step = [](const describe::Plan& plan) {
    Asked asked(plan);
    const BufferId scalars = asked.builder.buffer("scalars", DataType::fp32, Category::workspace, kScalars);
    std::vector<std::string> collectives;
    const std::size_t begin = asked.program.code.size();
    asked.zero.step(scalars);
    for (std::size_t i = begin; i < asked.program.code.size(); ++i) {
      const Instruction& instruction = asked.program.code[i];
      if (const auto kind = asked.program.kind_of(instruction))
        collectives.push_back(std::string(name_of(instruction.op)) + " over " + std::string(name_of(*kind)) +
                              (instruction.dims[0] <= kScalars ? " of scalars" : ""));
    }
    return collectives;
  };
  using Lines = std::vector<std::string>;
  const std::string scalars = "all_reduce over data_parallel of scalars";
  CHECK(step(over_four(0)) == Lines{scalars});
  CHECK(step(over_four(3)) == Lines{scalars});
  const std::string gather = "all_gather over data_parallel";
  CHECK(step(over_four(1)) == Lines{scalars, gather, gather, gather});
  // Replicas hold the same gradients: the norm is of one shard.
  CHECK(step(over_four(3, 2)) == Lines{scalars, "all_reduce over shard of scalars"});
  const std::string inside = "all_gather over shard";
  CHECK(step(over_four(2, 2)) == Lines{scalars, "all_reduce over shard of scalars", inside, inside, inside});
}
