#include <doctest/doctest.h>

#include "planner/predict/traffic.hpp"
#include "planner/predict/work.hpp"
#include "planner/program/compile.hpp"
#include "tests/support/plans.hpp"
#include "tests/support/unrolled.hpp"

using namespace zeroplan;
using program::GroupKind;
using program::Instruction;
using program::Op;
using program::Phase;
using program::StepProgram;

namespace {

// Gradients and parameters: without the scalars of the step's loss and norm.
double data_parallel_elements(const predict::Traffic& traffic, Op collective) {
  double sum = 0;
  for (const predict::TrafficEntry& entry : traffic.entries) {
    const bool scalars = entry.phase == Phase::step && entry.collective == Op::all_reduce;
    if (entry.group == GroupKind::data_parallel && entry.collective == collective && !scalars)
      sum += entry.elements;
  }
  return sum;
}

}  // namespace

TEST_CASE("traffic and FLOPs of the repeats are those of the unrolled program") {
  for (const describe::Model& model : {test::small_gpt(), test::small_llama()}) {
    test::for_each_plan(model, [&](const std::string& name, const describe::Plan& plan) {
      CAPTURE(name);
      const StepProgram program = program::compile(model, plan);
      double calls = 0;
      double elements = 0;
      double flops = 0;
      test::for_each_executed(
          program, [&](std::size_t, const Instruction& instruction, std::int64_t, std::int64_t, Phase) {
            flops += predict::executed_flops(program, instruction);
            if (instruction.group == program::kNoGroup) return;
            elements += static_cast<double>(instruction.dims[0]);
            calls += 1;
          });
      const predict::Traffic traffic = predict::read_traffic(program);
      double read_calls = 0;
      double read_elements = 0;
      for (const predict::TrafficEntry& entry : traffic.entries) {
        read_calls += entry.calls;
        read_elements += entry.elements;
      }
      CHECK(read_calls == calls);
      CHECK(read_elements == elements);
      CHECK(predict::read_work(program).hardware == flops);
      CHECK(predict::read_work(program).model <= flops);
    });
  }
}

TEST_CASE("data-parallel traffic counts the padding of every unit's partition") {
  const describe::Model model = test::small_gpt();
  for (std::int64_t ranks = 2; ranks <= 9; ++ranks) {
    describe::Plan plan = test::plain_plan();
    plan.data_parallel = ranks;
    plan.zero_stage = 2;
    double padded = 0;
    double whole = 0;
    for (const describe::ParameterGroup& group : describe::parameter_groups(model, plan.sequence)) {
      const Elements unit = group.elements_per_layer();
      const Elements each = (unit + ranks - 1) / ranks * ranks;
      padded += static_cast<double>(group.layers * each);
      whole += static_cast<double>(group.layers * unit);
    }
    CAPTURE(ranks);
    const predict::Traffic two = predict::read_traffic(program::compile(model, plan));
    CHECK(data_parallel_elements(two, Op::reduce_scatter) == padded);
    CHECK(data_parallel_elements(two, Op::all_gather) == padded);
    plan.zero_stage = 0;
    const predict::Traffic none = predict::read_traffic(program::compile(model, plan));
    CHECK(data_parallel_elements(none, Op::all_reduce) == whole);
    const double n = static_cast<double>(ranks);
    const double loss_and_overflow = 2 * 4;  // bytes
    CHECK(none.sent_bytes(GroupKind::data_parallel) ==
          doctest::Approx(2 * (n - 1) / n * (whole * 2 + loss_and_overflow)).epsilon(1e-12));
  }
}

TEST_CASE("gradient accumulation: stages 0 and 1 reduce once a step, stages 2 and 3 once a micro-batch") {
  const describe::Model model = test::small_gpt();
  for (int stage = 0; stage <= 3; ++stage) {
    describe::Plan plan = test::plain_plan();
    plan.data_parallel = 4;
    plan.zero_stage = stage;
    const auto reduced = [&](std::int64_t passes) {
      plan.gradient_accumulation = passes;
      const predict::Traffic traffic = predict::read_traffic(program::compile(model, plan));
      return data_parallel_elements(traffic, stage == 0 ? Op::all_reduce : Op::reduce_scatter);
    };
    CAPTURE(stage);
    CHECK(reduced(5) == reduced(1) * (stage >= 2 ? 5 : 1));
  }
}

TEST_CASE("data-parallel volume in multiples of the parameters: 2, 2, 2, 3") {
  const describe::Model model = describe::read_model_spelling("params=7.5B");
  const double expected[] = {2, 2, 2, 3};  // ZeRO, arXiv 1910.02054, Section 7
  for (int stage = 0; stage <= 3; ++stage) {
    describe::Plan plan = test::plain_plan();
    plan.data_parallel = 64;
    plan.zero_stage = stage;
    const predict::Traffic traffic = predict::read_traffic(program::compile(model, plan));
    CHECK(traffic.data_parallel_psi(7.5e9) == doctest::Approx(expected[stage]).epsilon(1e-6));
  }
}
