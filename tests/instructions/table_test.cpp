#include "planner/instructions/table.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>

#include "planner/program/compile.hpp"
#include "tests/support/plans.hpp"
#include "tests/support/unrolled.hpp"

using namespace zeroplan;
using namespace zeroplan::program;

namespace {

// What is wrong with one instruction by its row; empty: nothing.
std::string against_its_row(const StepProgram& program, const Instruction& instruction,
                            std::int64_t iteration) {
  const InstructionRow& row = row_of(instruction.op);
  const Shape shape{instruction.dims, instruction.extra, iteration};
  for (std::size_t i = 0; i < kMaxOperands; ++i) {
    const OperandRow& operand = row.operands[i];
    const BufferId id = instruction.operands[i].buffer;
    const std::string which = std::string(row.name) + ", operand " + std::to_string(i) + ": ";
    if (id == kNoBuffer) {
      if (operand.role != Role::none && !operand.is_optional) return which + "missing";
      continue;
    }
    if (operand.role == Role::none) return which + "not in the table";
    const Buffer& buffer = program.buffers[id];
    if (buffer.elements < operand.extent(shape)) return which + "too small";
    if (!allows(operand.types, buffer.type)) return which + "of type " + std::string(name_of(buffer.type));
  }
  for (std::size_t i = 0; i < instruction.dims.size(); ++i) {
    if (row.dims[i].empty() && instruction.dims[i] != 0)
      return std::string(row.name) + ": a dim without a name";
  }
  if (row.extra == Extra::none && instruction.extra != 0)
    return std::string(row.name) + ": extra without a meaning";
  return {};
}

}  // namespace

TEST_CASE("each instruction has a name of its own, and its operands stand one behind the other") {
  std::set<std::string_view> names;
  for (const InstructionRow& row : kInstructions) {
    CAPTURE(row.name);
    CHECK(!row.name.empty());
    CHECK(names.insert(row.name).second);
    for (std::size_t i = operands_of(row.op); i < kMaxOperands; ++i)
      CHECK(row.operands[i].role == Role::none);
    for (std::size_t i = 0; i < operands_of(row.op); ++i) CHECK(!row.operands[i].name.empty());
    if (row.kind == Class::kernel) CHECK(operands_of(row.op) > 0);
  }
}

TEST_CASE("whatever the compiler emits, for every plan of the grid, is what the table says") {
  int programs = 0;
  std::set<Op> seen;
  for (const char* engine : {"native", "deepspeed", "fsdp2", "megatron", "pytorch"}) {
    for (const describe::Model& model : {test::small_gpt(), test::small_llama()}) {
      test::for_each_plan(model, [&](const std::string& name, const describe::Plan& of_grid) {
        describe::Plan plan = of_grid;
        plan.engine = describe::find_engine(engine);
        const StepProgram program = compile(model, plan);
        ++programs;
        std::set<std::string> wrong;
        test::for_each_executed(program, [&](std::size_t, const Instruction& instruction, std::int64_t,
                                             std::int64_t iteration, Phase) {
          seen.insert(instruction.op);
          wrong.insert(against_its_row(program, instruction, iteration));
        });
        wrong.erase("");
        CAPTURE(engine);
        CAPTURE(name);
        if (!wrong.empty()) FAIL_CHECK(*wrong.begin());
      });
    }
  }
  CHECK(programs >= 1000);
  CHECK(seen.size() >= 40);
}
