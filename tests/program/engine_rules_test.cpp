#include <doctest/doctest.h>

#include "planner/predict/work.hpp"
#include "planner/program/compile.hpp"
#include "tests/support/plans.hpp"
#include "tests/support/unrolled.hpp"

// What engines do in their own order, or leave out.

using namespace zeroplan;
using program::GroupKind;
using program::Instruction;
using program::Op;
using program::Stream;

namespace {

describe::Plan plan_of(const char* engine) {
  describe::Plan plan = test::plain_plan();
  plan.engine = describe::find_engine(engine);
  plan.recompute = describe::Recompute::full;
  return plan;
}

}  // namespace

TEST_CASE("recomputation that stops early leaves out the last product of each layer, and nothing else") {
  for (const describe::Model& model : {test::small_gpt(), test::small_llama()}) {
    describe::Plan plan = plan_of("fsdp2");
    const auto executed = [&] { return predict::read_work(program::compile(model, plan)).hardware; };
    const double early = executed();
    plan.engine.edit().recompute_stops_early = false;
    const double tokens = static_cast<double>(plan.micro_batch * plan.sequence);
    // 2 m n k of {tokens, hidden, ffn}.
    const double last_products = static_cast<double>(model.layers) * 2 * tokens *
                                 static_cast<double>(model.hidden) * static_cast<double>(model.ffn);
    CHECK(executed() - early == doctest::Approx(last_products));

    plan.engine.edit().recompute_stops_early = true;
    plan.checkpoint_interval = 2;  // layers inside a block need the output of the one before
    CHECK(executed() - early == doctest::Approx(last_products));
    plan.checkpoint_interval = 1;
    plan.dropout = true;  // its mask comes after the product
    CHECK(executed() - early == doctest::Approx(last_products));
  }
}

TEST_CASE("sums beside the weight's gradient: the next kernel is it, and touches nothing of the sum") {
  describe::Plan plan = plan_of("megatron");
  plan.tensor_parallel = 2;
  const describe::Model model = test::small_gpt();
  const program::StepProgram program = program::compile(model, plan);
  std::int64_t beside = 0;
  test::for_each_executed(program, [&](std::size_t index, const Instruction& instruction, std::int64_t,
                                       std::int64_t, program::Phase phase) {
    if (instruction.stream != Stream::tensor) return;
    ++beside;
    CHECK(instruction.op == Op::all_reduce);
    CHECK(program.kind_of(instruction) == GroupKind::tensor_parallel);
    CHECK(phase == program::Phase::backward);
    const Instruction& next = program.code[index + 1];
    CHECK(next.op == Op::matmul_weight_gradient);
    for (const program::Operand operand : next.operands) {
      CHECK(operand.buffer != instruction.operands[0].buffer);
    }
  });
  // Attention and MLP of each layer, and the logits.
  CHECK(beside == 2 * model.layers + 1);

  plan.engine.edit().backward_in_place = true;
  for (const Instruction& instruction : program::compile(model, plan).code) {
    CHECK(instruction.stream != Stream::tensor);
  }
}

TEST_CASE("traffic that runs beside the kernels is on the communication stream, other traffic on theirs") {
  using program::Phase;
  describe::Plan plan = plan_of("native");
  plan.data_parallel = 2;
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool overlap : {true, false}) {
      plan.zero_stage = stage;
      plan.overlap = overlap;
      CAPTURE(stage);
      CAPTURE(overlap);
      const program::StepProgram program = program::compile(test::small_gpt(), plan);
      std::int64_t collectives = 0;
      test::for_each_executed(
          program, [&](std::size_t, const Instruction& instruction, std::int64_t, std::int64_t, Phase phase) {
            if (program.kind_of(instruction) != GroupKind::data_parallel) return;
            ++collectives;
            const bool beside = overlap && phase != Phase::step;
            CHECK(instruction.stream == (beside ? Stream::communication : Stream::compute));
          });
      CHECK(collectives > 0);
    }
  }
}

TEST_CASE("checkpoints that the engine copies among its kernels are on their stream") {
  describe::Plan plan = plan_of("native");
  plan.tensor_parallel = 2;
  plan.partition_activations = plan.offload_activations = true;
  for (const bool beside : {true, false}) {
    plan.engine.edit().overlaps_checkpoint_copies = beside;
    int copies = 0;
    for (const Instruction& instruction : program::compile(test::small_gpt(), plan).code) {
      if (instruction.op != Op::copy_to_host && instruction.op != Op::copy_to_device) continue;
      ++copies;
      const Stream own = instruction.op == Op::copy_to_host ? Stream::to_host : Stream::to_device;
      CHECK(instruction.stream == (beside ? own : Stream::compute));
    }
    CHECK(copies > 0);
  }
}
