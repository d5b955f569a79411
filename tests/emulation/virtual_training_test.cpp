#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "executor/communicator/devices/shared_card_planes.hpp"
#include "executor/device/cuda/cuda_device.hpp"
#include "runtime/machine.hpp"
#include "tests/executor/training_support.hpp"

// Whole training steps of several ranks on one emulated GPU, against the CPU device.

using namespace zeroplan;
using namespace zeroplan::executor;
using emulation::Gpu;
using emulation::Machine;
using emulation::Policy;
using emulation::Schedule;

namespace {

struct Layout {
  int stage;
  std::int64_t data_parallel, tensor_parallel;
  describe::Recompute recompute = describe::Recompute::none;
};

describe::Plan plan_of(const Layout& layout) {
  describe::Plan plan = test::fp32_plan();
  plan.zero_stage = layout.stage;
  plan.data_parallel = layout.data_parallel;
  plan.tensor_parallel = layout.tensor_parallel;
  plan.recompute = layout.recompute;
  plan.gradient_accumulation = 2;
  return plan;
}

test::TrainingOptions options_of() {
  test::TrainingOptions options;
  options.steps = 2;
  options.settings.clip_norm = 1;
  return options;
}

test::Training trained_on_one_gpu(const Layout& layout, const Schedule& schedule) {
  const Machine machine({.gpus = std::vector<Gpu>(1), .schedule = schedule});
  test::TrainingOptions options = options_of();
  options.device = [](std::int64_t) { return make_cuda_device({}); };
  options.planes = make_shared_card_planes;
  const test::Training got = test::train(test::tiny_gpt(), plan_of(layout), options);
  CHECK(machine.problems() == std::vector<std::string>{});
  CHECK(machine.leaks() == std::vector<std::string>{});
  return got;
}

}  // namespace

TEST_CASE("virtual ranks on one GPU train as ranks on processors do, and all stages with the same bits") {
  struct Degrees {
    std::int64_t data_parallel, tensor_parallel;
    std::vector<int> stages;
  };
  for (const auto& [data_parallel, tensor_parallel, stages] :
       {Degrees{2, 1, {0, 1, 2, 3}}, Degrees{3, 1, {1, 3}}, Degrees{2, 2, {0, 3}}}) {
    std::vector<float> first;
    for (const int stage : stages) {
      const std::string label = fmt::format("stage {}, dp {}, tp {}", stage, data_parallel, tensor_parallel);
      CAPTURE(label);
      const Layout layout{stage, data_parallel, tensor_parallel};
      const test::Training want = test::train(test::tiny_gpt(), plan_of(layout), options_of());
      const test::Training got = trained_on_one_gpu(
          layout, stage % 2 == 0 ? Schedule{Policy::late, 0} : Schedule{Policy::random, 11});
      REQUIRE(got.losses.size() == want.losses.size());
      for (std::size_t i = 0; i < got.losses.size(); ++i)
        CHECK(std::fabs(got.losses[i] - want.losses[i]) < 1e-5F);
      for (std::size_t rank = 0; rank < want.high_water.size(); ++rank) {
        CHECK(got.high_water[rank].device == want.high_water[rank].device);
      }
      CHECK(got.data_parallel_bytes == want.data_parallel_bytes);
      CHECK(got.tensor_parallel_bytes == want.tensor_parallel_bytes);
      if (first.empty()) first = got.losses;
      CHECK(test::same_bits(got.losses, first));
    }
  }
}

TEST_CASE("eight virtual ranks train on one GPU") {
  const Layout layout{3, 4, 2, describe::Recompute::full};
  const test::Training want = test::train(test::tiny_gpt(), plan_of(layout), options_of());
  const test::Training got = trained_on_one_gpu(layout, {Policy::random, 3});
  REQUIRE(got.losses.size() == want.losses.size());
  for (std::size_t i = 0; i < got.losses.size(); ++i)
    CHECK(std::fabs(got.losses[i] - want.losses[i]) < 1e-5F);
}
