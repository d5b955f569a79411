#include <doctest/doctest.h>

#include <atomic>

#include "executor/error.hpp"
#include "planner/predict/memory.hpp"
#include "planner/program/compile.hpp"
#include "tests/executor/training_support.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;
using namespace zeroplan::executor::test;
using describe::Model;
using describe::Plan;

// Faults that partitioned activations of other engines had (12).

namespace {

bool is_held(Rank& rank, std::size_t buffer, std::int64_t layer) {
  try {
    rank.interpreter().tensor(static_cast<program::BufferId>(buffer), layer);
    return true;
  } catch (const DeviceError&) {
    return false;
  }
}

// Instances of buffers of `category` that a rank holds.
std::int64_t held(Rank& rank, program::Category category) {
  std::int64_t count = 0;
  for (std::size_t b = 0; b < rank.program().buffers.size(); ++b) {
    const program::Buffer& buffer = rank.program().buffers[b];
    if (buffer.category != category || buffer.parent != program::kNoBuffer) continue;
    for (std::int64_t i = 0; i < buffer.instances; ++i) count += is_held(rank, b, buffer.first_layer + i);
  }
  return count;
}

}  // namespace

TEST_CASE("fault 12, partitioned activations: sizes that do not divide, on the device and on the host") {
  // 3 x 21 = 63 and 3 x 3 x 21 = 189 elements over 2 or 4 ranks; tensor parallelism does not divide the
  // width.
  const Model model = describe::read_model_spelling(
      "layers=5,hidden=21,heads=4,kv_heads=4,head_dim=6,vocab=31,ffn=12,gated=true");
  for (const auto precision : {describe::Precision::fp32, describe::Precision::bf16}) {
    for (const std::int64_t micro_batch : {1, 3}) {
      for (const std::int64_t interval : {1, 2}) {
        for (int stage = 0; stage <= 3; stage += 3) {
          Plan plan = fp32_plan();
          plan.precision = precision;
          plan.tensor_parallel = stage == 0 ? 4 : 2;
          plan.data_parallel = stage == 0 ? 1 : 2;
          plan.zero_stage = stage;
          plan.sequence = 3;
          plan.micro_batch = micro_batch;
          plan.gradient_accumulation = 2;
          CAPTURE(name_of(precision));
          CAPTURE(micro_batch);
          CAPTURE(interval);
          CAPTURE(stage);
          REQUIRE(micro_batch * plan.sequence * model.hidden % plan.tensor_parallel != 0);
          TrainingOptions options;
          options.steps = 2;
          const Training reference = train(model, plan, options);

          plan.recompute = describe::Recompute::full;
          plan.checkpoint_interval = interval;
          const Training whole = train(model, plan, options);
          plan.partition_activations = true;
          const Training partitioned = train(model, plan, options);
          plan.offload_activations = true;
          std::atomic<std::int64_t> left = 0;
          options.visit = [&](Rank& rank, std::int64_t) {
            left += held(rank, program::Category::checkpoint);
          };
          const Training offloaded = train(model, plan, options);

          for (const Training* training : {&whole, &partitioned, &offloaded}) {
            CHECK(same_bits(training->losses, reference.losses));
            CHECK(same_bits(training->norms, reference.norms));
          }
          CHECK(left == 0);
          // One part of each checkpoint, rounded up.
          const std::int64_t checkpoints = (model.layers + interval - 1) / interval;
          const std::int64_t parts = plan.tensor_parallel;
          const Elements part = (micro_batch * plan.sequence * model.hidden + parts - 1) / parts;
          const Bytes element = precision == describe::Precision::fp32 ? 4 : 2;
          for (std::size_t r = 0; r < offloaded.high_water.size(); ++r) {
            CHECK(whole.high_water[r].host == 0);
            CHECK(partitioned.high_water[r].host == 0);
            CHECK(offloaded.high_water[r].host == checkpoints * round_up(part * element, 256));
            CHECK(offloaded.high_water[r].device <= partitioned.high_water[r].device);
          }
          const program::StepProgram program = program::compile(model, plan);
          CHECK(offloaded.high_water[0].host == predict::read_memory(program).host_peak);
        }
      }
    }
  }
}
