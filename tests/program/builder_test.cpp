#include "planner/program/builder.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace zeroplan;
using namespace zeroplan::program;

namespace {

std::vector<Op> ops_of(const StepProgram& program) {
  std::vector<Op> ops;
  for (const Instruction& instruction : program.code) ops.push_back(instruction.op);
  return ops;
}

}  // namespace

TEST_CASE("builder: a buffer of nothing is none, and what names none is not emitted") {
  StepProgram program;
  Builder builder(program, 256);
  CHECK(builder.buffer("nothing", DataType::fp32, Category::activation, 0) == kNoBuffer);
  CHECK(builder.buffer("no layers", DataType::fp32, Category::activation, 8, {0, 0}) == kNoBuffer);
  CHECK(builder.view("part of nothing", kNoBuffer, 0, 4) == kNoBuffer);
  CHECK(builder.reserve(kNoBuffer) == kNoBuffer);
  builder.acquire(at(kNoBuffer));
  builder.release_all(kNoBuffer);
  CHECK(program.buffers.empty());
  CHECK(program.code.empty());
}

TEST_CASE("builder: bytes are rounded up to the alignment, and views of views are of the holder") {
  StepProgram program;
  Builder builder(program, 256);
  const BufferId whole =
      builder.buffer("whole", DataType::bf16, Category::parameter, 129, {3, 5}, Space::host);
  CHECK(builder[whole].bytes == 512);  // 258 bytes
  const BufferId half = builder.view("half", whole, 64, 60);
  const BufferId part = builder.view("part", half, 10, 20);
  CHECK(builder[part].parent == whole);
  CHECK(builder[part].offset == 74);
  CHECK(builder[part].elements == 20);
  CHECK(builder[part].bytes == 0);
  CHECK(builder[part].instances == 3);
  CHECK(builder[part].first_layer == 5);
  CHECK(builder[part].space == Space::host);
  CHECK(program.holder_of(part) == whole);
}

TEST_CASE("builder: loops know where they end, one time is no loop, and no time is nothing") {
  StepProgram program;
  Builder builder(program, 1);
  const auto body = [&] { builder.emit(Op::copy, {1}, {}); };
  builder.times(0, body);
  builder.layers(0, 0, 1, body);
  CHECK(program.code.empty());
  builder.times(1, body);
  CHECK(ops_of(program) == std::vector<Op>{Op::copy});
  program.code.clear();
  builder.layers(3, 2, -1, [&] { builder.times(4, body); });
  CHECK(ops_of(program) == std::vector<Op>{Op::repeat, Op::repeat, Op::copy, Op::end_repeat, Op::end_repeat});
  CHECK(program.code[0].dims == std::array<std::int64_t, 4>{3, 2, -1, 4});
  CHECK(program.code[1].dims == std::array<std::int64_t, 4>{4, 0, 0, 3});
  // Of one layer it stays a loop: the register moves.
  program.code.clear();
  builder.layers(1, 7, 1, body);
  CHECK(program.code.size() == 3);
}

TEST_CASE("builder: collectives are over groups of more than one rank") {
  StepProgram program;
  program.groups = {{GroupKind::data_parallel, 4, 1, 2}, {GroupKind::tensor_parallel, 2, 1, 1}};
  program.ranks = 8;
  Builder builder(program, 1);
  builder.collective(Op::all_reduce, program.find_group(GroupKind::replica), 8, {});
  CHECK(program.code.empty());
  builder.tensor_collective(Op::all_reduce, 8, {}, kMaximum, Stream::tensor);
  REQUIRE(program.code.size() == 1);
  CHECK(program.code[0].group == 1);
  CHECK(program.code[0].dims[0] == 8);
  CHECK(program.code[0].flags == kMaximum);
  CHECK(program.code[0].stream == Stream::tensor);
  CHECK(builder.tensor_rank() == 1);
}

TEST_CASE("builder: what is recomputed says so, while it is") {
  StepProgram program;
  Builder builder(program, 1);
  {
    const Builder::Recomputing recomputing(builder);
    builder.emit(Op::copy, {1}, {});
  }
  builder.emit(Op::copy, {1}, {});
  CHECK(program.code[0].flags == kRecomputed);
  CHECK(program.code[1].flags == 0);
}

TEST_CASE("scope: what was acquired is released in reverse order") {
  StepProgram program;
  Builder builder(program, 1);
  const BufferId a = builder.buffer("a", DataType::fp32, Category::activation, 1);
  const BufferId b = builder.buffer("b", DataType::fp32, Category::activation, 1);
  Scope scope(builder);
  scope.acquire(at(a));
  scope.acquire(at(kNoBuffer));
  scope.acquire(at(b));
  scope.release();
  CHECK(ops_of(program) == std::vector<Op>{Op::acquire, Op::acquire, Op::release, Op::release});
  CHECK(program.code[2].operands[0].buffer == b);
  CHECK(program.code[3].operands[0].buffer == a);
}
