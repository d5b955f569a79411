#pragma once

#include "planner/program/builder.hpp"

// A step as a pipeline stage takes it, by hand: one forward, one backward (1F1B; Narayanan et al., arXiv 2104.04473).
namespace zeroplan::test {

struct Pipelined {
  program::StepProgram program;
  program::BufferId count = program::kNoBuffer, one = program::kNoBuffer, sum = program::kNoBuffer,
                    kept = program::kNoBuffer;
};

// `depth` micro-batches are in flight: forward of micro-batch i counts to i + 1 and keeps it, backward of the oldest adds
// what was kept for it to `sum` and gives its memory back. `kept` has a set of instances for each micro-batch in flight,
// from which the iteration register chooses; with fewer `slots` than that, one is overwritten before it is read.
inline Pipelined pipelined(std::int64_t micro_batches, std::int64_t depth, std::int64_t slots) {
  using namespace program;
  constexpr Elements kElements = 64;
  Pipelined result;
  Builder builder(result.program, 256);
  result.program.layers = 1;
  const auto buffer = [&](const char* name, Category category, Instances instances = {}) {
    return builder.buffer(name, DataType::fp32, category, kElements, instances);
  };
  const BufferId scalars = builder.buffer("scalars", DataType::fp32, Category::workspace, kScalars);
  result.count = buffer("count", Category::parameter);
  result.one = buffer("one", Category::parameter);
  result.sum = buffer("sum", Category::gradient);
  result.kept = buffer("kept", Category::activation, {1, 0, slots});
  builder.phase(Phase::setup);
  builder.acquire(at(scalars));
  for (const BufferId state : {result.count, result.one, result.sum}) builder.acquire(at(state));
  builder.phase(Phase::forward);
  const auto forward = [&](std::int64_t ahead) {
    const Operand kept = at(result.kept, 0, static_cast<std::int8_t>(ahead));
    builder.acquire(kept);
    builder.emit(Op::accumulate, {kElements}, {at(result.one), at(result.count)});
    builder.emit(Op::copy, {kElements}, {at(result.count), kept});
  };
  const auto backward = [&](std::int64_t ahead) {
    const Operand kept = at(result.kept, 0, static_cast<std::int8_t>(ahead));
    builder.emit(Op::accumulate, {kElements}, {kept, at(result.sum)}).stream = Stream::communication;
    builder.release(kept);
  };
  builder.times(depth - 1, [&] { forward(0); });
  builder.times(micro_batches - depth + 1, [&] {
    forward(depth - 1);
    backward(0);
  });
  builder.times(depth - 1, [&] { backward((micro_batches - depth + 1) % slots); });
  builder.wait_for_all();
  return result;
}

}  // namespace zeroplan::test
