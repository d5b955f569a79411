#include "planner/predict/summary.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "planner/predict/prediction.hpp"
#include "planner/predict/trace.hpp"
#include "planner/program/compile.hpp"
#include "tests/support/plans.hpp"
#include "tests/support/unrolled.hpp"

using namespace zeroplan;
using predict::Summary;
using program::Instruction;
using program::Op;
using program::SectionKind;
using program::StepProgram;

namespace {

// The step, put together from its outermost sections, each read by itself.
Summary composed(const StepProgram& program, const predict::StepCosts* costs) {
  Summary step;
  std::size_t done = 0;
  for (const program::Section& section : program.sections) {
    if (section.begin < done) continue;  // inside of one before
    const Summary of_section = summarize(program, costs, section.begin, section.end);
    const bool is_loop = section.begin > 0 && program.code[section.begin - 1].op == Op::repeat;
    is_loop ? step.append(of_section.power(program.code[section.begin - 1].dims[0]))
            : step.append(of_section);
    done = section.end;
  }
  return step;
}

// The highest that the unrolled step holds.
Bytes unrolled_peak(const StepProgram& program) {
  test::Arena arena(program);
  Bytes peak = 0;
  test::for_each_executed(program, [&](std::size_t, const Instruction& instruction, std::int64_t layer,
                                       std::int64_t, program::Phase) {
    arena.apply(instruction, layer);
    peak = std::max(peak, arena.device_bytes());
  });
  return peak;
}

}  // namespace

TEST_CASE("summary: the sections of a step compose to what the whole step and its unrolled walk give") {
  const auto near = [](double value) { return doctest::Approx(value).epsilon(1e-12); };
  int plans = 0;
  for (const describe::Model& model : {test::small_gpt(), test::small_llama()}) {
    test::for_each_plan(model, [&](const std::string& name, describe::Plan plan) {
      if (plan.devices() > 8 || 8 % plan.devices() != 0) return;
      plan.gradient_accumulation = 1 + plans++ % 5;
      CAPTURE(name);
      const StepProgram program = program::compile(model, plan);
      const describe::Cluster cluster = describe::resolve_cluster("ndm-a100-v4", {}, plan.devices());
      const predict::KernelRates rates = predict::kernel_rates(cluster.device, plan);
      const auto costs = predict::step_costs(program, cluster, rates);
      REQUIRE(costs);
      const Summary step = composed(program, &*costs);
      const predict::MemoryProfile memory = predict::read_memory(program);
      CHECK(step.memory.device.peak == memory.peak);
      CHECK(step.memory.device.peak == unrolled_peak(program));
      CHECK(step.memory.device.at_peak == memory.at_peak);
      CHECK(step.memory.host.peak == memory.host_peak);
      CHECK(step.memory.device.place.instruction == memory.place.instruction);
      CHECK(step.memory.device.place.layer == memory.place.layer);

      double calls = 0, flops = 0;
      test::for_each_executed(program, [&](std::size_t, const Instruction& instruction, std::int64_t,
                                           std::int64_t, program::Phase) {
        flops += predict::executed_flops(program, instruction);
        calls += instruction.group == program::kNoGroup ? 0 : 1;
      });
      double composed_calls = 0;
      for (const predict::TrafficEntry& entry : step.traffic.entries) composed_calls += entry.calls;
      CHECK(composed_calls == calls);
      CHECK(step.work.hardware == flops);
      for (const program::GroupKind group :
           {program::GroupKind::data_parallel, program::GroupKind::tensor_parallel}) {
        CHECK(step.traffic.sent_bytes(group) == near(predict::read_traffic(program).sent_bytes(group)));
      }

      const predict::StepTime time = predict::step_time_of(step.time);
      const predict::StepTime whole = predict::read_time(program, cluster, rates);
      CHECK(time.seconds == near(predict::read_trace(program, cluster, rates).step_seconds));
      for (std::size_t part = 0; part < predict::kExposedParts; ++part) {
        CHECK(time.exposed_seconds[part] / time.seconds ==
              doctest::Approx(whole.exposed_seconds[part] / time.seconds).epsilon(1e-12).scale(1));
      }
      CHECK(time.data_parallel_seconds == near(whole.data_parallel_seconds));
    });
  }
  CHECK(plans >= 200);
}

TEST_CASE("summary: every exposed part is what a reading without it is faster by") {
  describe::Plan plan = test::plain_plan();
  plan.data_parallel = 4;
  plan.tensor_parallel = 2;
  plan.gradient_accumulation = 5;
  plan.zero_stage = 2;
  plan.precision = describe::Precision::bf16;
  plan.offload = describe::Offload::optimizer;
  const StepProgram program = program::compile(test::small_gpt(), plan);
  const describe::Cluster cluster = describe::resolve_cluster("ndm-a100-v4", {}, 8);
  const predict::KernelRates rates = predict::kernel_rates(cluster.device, plan);
  predict::StepCosts costs = *predict::step_costs(program, cluster, rates);
  const predict::StepTime time = predict::read_time(program, cluster, rates);
  double before = time.seconds;
  for (const predict::ExposedPart part : predict::kLeftOut) {
    CAPTURE(name_of(part));
    if (part == predict::ExposedPart::launch_gaps) costs.kernel_gap_s = costs.host_issue_s = 0;
    auto phase = program::Phase::setup;
    for (std::size_t i = 0; i < program.code.size(); ++i) {
      if (program.code[i].op == Op::phase) phase = static_cast<program::Phase>(program.code[i].dims[0]);
      if (predict::part_of(program, program.code[i], phase) == part) costs.seconds[i] = 0;
    }
    const double after = predict::read_step_seconds(program, costs);
    CHECK(after < before);
    CHECK(time.exposed(part) == doctest::Approx(before - after).epsilon(1e-9));
    before = after;
  }
}

TEST_CASE("summary: a section is named for what it is, and sections nest") {
  describe::Plan plan = test::plain_plan();
  plan.gradient_accumulation = 3;
  plan.data_parallel = 2;
  const StepProgram program = program::compile(test::small_gpt(), plan);
  std::vector<SectionKind> outermost;
  std::size_t done = 0;
  for (const program::Section& section : program.sections) {
    CHECK(section.begin < section.end);
    CHECK(section.end <= program.code.size());
    if (section.begin < done) {
      CHECK(section.end <= done);
      continue;
    }
    outermost.push_back(section.kind);
    done = section.end;
  }
  CHECK(outermost == std::vector{SectionKind::states, SectionKind::cleared_gradients,
                                 SectionKind::micro_batch, SectionKind::micro_batch, SectionKind::step});
  CHECK(done == program.code.size());
}
