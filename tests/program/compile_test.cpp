#include "planner/program/compile.hpp"

#include <doctest/doctest.h>

#include <set>

#include "planner/instructions/table.hpp"
#include "planner/predict/memory.hpp"
#include "tests/support/plans.hpp"
#include "tests/support/unrolled.hpp"

using namespace zeroplan;
using program::Instruction;
using program::Op;
using program::StepProgram;

namespace {

using program::is_memory;

// The buffer that holds an operand: itself, or the parent of a view.
program::BufferId holder_of(const StepProgram& program, program::BufferId buffer) {
  const program::BufferId parent = program.buffers[buffer].parent;
  return parent == program::kNoBuffer ? buffer : parent;
}

// Of our own engine, and of those that emit something in another order or not at all.
template <class Visit>
int for_each_small_program(Visit&& visit) {
  int count = 0;
  for (const char* name_of_engine : {"native", "megatron", "fsdp2"}) {
    const describe::Engine engine = describe::find_engine(name_of_engine);
    for (const describe::Model& model : {test::small_gpt(), test::small_llama()}) {
      test::for_each_plan(model, [&](const std::string& name, const describe::Plan& native) {
        CAPTURE(engine.name);
        CAPTURE(name);
        describe::Plan plan = native;
        plan.engine = engine;
        ++count;
        visit(model, plan, program::compile(model, plan));
      });
    }
  }
  return count;
}

}  // namespace

TEST_CASE(
    "a program is a stack: acquired once, released in reverse order, empty at the end but for the states") {
  const int programs = for_each_small_program([](const auto&, const auto&, const StepProgram& program) {
    test::Arena arena(program);
    std::size_t after_setup = 0;
    CHECK_NOTHROW(test::for_each_executed(program, [&](std::size_t, const Instruction& instruction,
                                                       std::int64_t layer, std::int64_t, program::Phase) {
      if (instruction.op == Op::phase && after_setup == 0) after_setup = arena.held();
      if (is_memory(instruction.op)) arena.apply(instruction, layer);
    }));
    CHECK(arena.held() == after_setup);
  });
  CHECK(programs >= 200);
}

TEST_CASE("every operand of every executed instruction is held when it is used, and big enough") {
  for_each_small_program([](const auto&, const auto&, const StepProgram& program) {
    test::Arena arena(program);
    std::set<std::size_t> wrong;
    test::for_each_executed(program, [&](std::size_t index, const Instruction& instruction,
                                         std::int64_t layer, std::int64_t, program::Phase) {
      if (is_memory(instruction.op)) {
        arena.apply(instruction, layer);
        return;
      }
      for (const program::Operand operand : instruction.operands) {
        if (operand.buffer == program::kNoBuffer) continue;
        const program::BufferId holder = holder_of(program, operand.buffer);
        const std::int64_t instance = test::instance_of(program, operand, layer);
        const program::Buffer& buffer = program.buffers[operand.buffer];
        if (!arena.holds(holder, instance)) wrong.insert(index);
        if (buffer.offset + buffer.elements > program.buffers[holder].elements) wrong.insert(index);
      }
    });
    CHECK(wrong.empty());
  });
}

TEST_CASE("the peak of the algebra is the peak of the unrolled program, and so is where it is") {
  for_each_small_program([](const auto&, const auto&, const StepProgram& program) {
    test::Arena arena(program);
    Bytes peak = 0;
    Bytes host_peak = 0;
    std::size_t where = 0;
    std::int64_t at_layer = 0;
    test::for_each_executed(program, [&](std::size_t index, const Instruction& instruction,
                                         std::int64_t layer, std::int64_t, program::Phase) {
      if (!is_memory(instruction.op)) return;
      arena.apply(instruction, layer);
      if (arena.device_bytes() > peak) {
        peak = arena.device_bytes();
        where = index;
        at_layer = layer;
      }
      host_peak = std::max(host_peak, arena.host_bytes());
    });
    const predict::MemoryProfile profile = predict::read_memory(program);
    CHECK(profile.peak == peak);
    CHECK(profile.host_peak == host_peak);
    CHECK(profile.place.instruction == where);
    if (profile.place.layer >= 0) CHECK(profile.place.layer == at_layer);

    Bytes by_category = 0;
    for (const Bytes bytes : profile.at_peak) by_category += bytes;
    CHECK(by_category == peak);
    Bytes live = 0;
    for (const predict::LiveBuffer& buffer : predict::live_at_peak(program, profile)) live += buffer.bytes;
    CHECK(live == peak);
  });
}

TEST_CASE("a program's length does not depend on the number of layers") {
  for (int stage = 0; stage <= 3; ++stage) {
    describe::Plan plan = test::plain_plan();
    plan.zero_stage = stage;
    plan.data_parallel = 4;
    describe::Model model = test::small_gpt();
    model.layers = 3;
    const std::size_t few = program::compile(model, plan).code.size();
    model.layers = 3000;
    CHECK(program::compile(model, plan).code.size() == few);
  }
}

TEST_CASE(
    "each parameter has one owner: partitions of all ranks cover every unit once, padding owned by nobody") {
  for (const std::int64_t hidden : {1, 2, 3, 7, 8, 9, 31}) {
    for (std::int64_t ranks = 1; ranks <= 9; ++ranks) {
      describe::Model model = test::small_gpt();
      model.hidden = hidden;
      model.heads = model.kv_heads = 1;
      model.head_dim = hidden;
      describe::Plan plan = test::plain_plan();
      plan.zero_stage = 3;
      plan.data_parallel = ranks;
      Elements owned = 0;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const StepProgram program = program::compile(model, plan, {rank, 0});
        test::for_each_executed(program, [&](std::size_t, const Instruction& instruction, std::int64_t,
                                             std::int64_t, program::Phase) {
          if (instruction.op == Op::gradient_norm) owned += instruction.dims[0];
        });
      }
      CAPTURE(hidden);
      CAPTURE(ranks);
      CHECK(owned == describe::count_parameters(model, plan.sequence));
    }
  }
}

TEST_CASE("with tensor parallelism what all ranks hold alike is counted once for the norm") {
  const describe::Model model = test::small_llama();
  describe::Plan plan = test::plain_plan();
  for (const std::int64_t tp : {1, 2, 4}) {
    plan.tensor_parallel = tp;
    Elements distinct = 0;
    Elements alike = 0;
    for (std::int64_t rank = 0; rank < tp; ++rank) {
      const StepProgram program = program::compile(model, plan, {0, rank});
      Elements alike_here = 0;
      test::for_each_executed(program, [&](std::size_t, const Instruction& instruction, std::int64_t,
                                           std::int64_t, program::Phase) {
        if (instruction.op != Op::gradient_norm) return;
        distinct += instruction.dims[1];
        alike_here += instruction.dims[0] - instruction.dims[1];
      });
      alike = alike_here;
    }
    // The vocabulary is padded to a multiple of tp, twice: table and head.
    const Elements padding = 2 * (round_up(model.vocabulary, tp) - model.vocabulary) * model.hidden;
    CHECK(distinct + alike == describe::count_parameters(model, plan.sequence) + padding);
  }
}
