#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "executor/communicator/nccl/nccl_planes.hpp"
#include "executor/device/cuda/cuda_device.hpp"
#include "executor/error.hpp"
#include "planner/describe/model/model.hpp"
#include "planner/predict/memory.hpp"
#include "planner/program/compile.hpp"
#include "runtime/machine.hpp"
#include "tests/executor/pytorch_support.hpp"

// Whole training steps on one emulated GPU, against the CPU device.

using namespace zeroplan;
using namespace zeroplan::executor;
using emulation::Gpu;
using emulation::Machine;
using emulation::Policy;
using emulation::Schedule;

namespace {

struct Case {
  const char* name;
  describe::Model model;
  describe::Plan plan;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](const char* name, const describe::Model& model, const auto& change) {
    describe::Plan plan = test::fp32_plan();
    plan.gradient_accumulation = 2;
    change(plan);
    all.push_back({name, model, plan});
  };
  add("gpt", test::tiny_gpt(), [](describe::Plan&) {});
  add("llama", test::tiny_llama(), [](describe::Plan&) {});
  add("recomputed", test::tiny_gpt(),
      [](describe::Plan& plan) { plan.recompute = describe::Recompute::full; });
  add("optimizer offloaded", test::tiny_llama(),
      [](describe::Plan& plan) { plan.offload = describe::Offload::optimizer; });
  add("dropout", test::tiny_gpt(), [](describe::Plan& plan) {
    plan.dropout = true;
    plan.attention = describe::AttentionKernel::materialized;
    plan.recompute = describe::Recompute::selective;
  });
  add("dropout, recomputed", test::tiny_llama(), [](describe::Plan& plan) {
    plan.dropout = true;
    plan.recompute = describe::Recompute::full;
  });
  return all;
}

test::TrainingOptions options_of(std::int64_t steps) {
  test::TrainingOptions options;
  options.steps = steps;
  options.settings.clip_norm = 1;
  return options;
}

}  // namespace

TEST_CASE(
    "training on an emulated GPU gives the CPU device's losses, under every schedule, in the planned "
    "memory") {
  const std::vector<Schedule> schedules{
      {Policy::in_order, 0}, {Policy::late, 0}, {Policy::priority, 5039}, {Policy::random, 1}};
  for (const Case& one : cases()) {
    CAPTURE(one.name);
    const test::Training want = test::train(one.model, one.plan, options_of(4));
    std::vector<float> first;
    for (const Schedule& schedule : schedules) {
      CAPTURE(schedule.seed);
      const Machine machine({.gpus = std::vector<Gpu>(1), .schedule = schedule});
      test::TrainingOptions options = options_of(4);
      options.device = [](std::int64_t) { return make_cuda_device({}); };
      const test::Training got = test::train(one.model, one.plan, options);
      REQUIRE(got.losses.size() == want.losses.size());
      for (std::size_t i = 0; i < got.losses.size(); ++i) {
        CHECK(std::fabs(got.losses[i] - want.losses[i]) < 1e-5F);
        CHECK(got.norms[i] == doctest::Approx(want.norms[i]).epsilon(1e-4));
      }
      CHECK(got.high_water[0].device == want.high_water[0].device);
      if (first.empty()) first = got.losses;
      CHECK(test::same_bits(got.losses, first));  // whatever the schedule
      CHECK(machine.problems() == std::vector<std::string>{});
      CHECK(machine.leaks() == std::vector<std::string>{});
    }
  }
}

TEST_CASE(
    "the third step, and those behind it, launch graphs of what follows each other on the compute stream") {
  Machine machine({.gpus = std::vector<Gpu>(1)});
  const Case one = cases().front();
  const auto run = [&](std::int64_t steps) {
    machine.fail_call("cudaGraphLaunch", 1, cudaErrorInvalidValue);
    test::TrainingOptions options = options_of(steps);
    options.device = [](std::int64_t) { return make_cuda_device({}); };
    test::train(one.model, one.plan, options);
  };
  CHECK_NOTHROW(run(2));
  CHECK_THROWS_AS(run(3), DeviceError);
}

TEST_CASE(
    "what can be one kernel is one from the third step on: a sum and its norm, a product and its GELU") {
  const describe::Model model =
      describe::read_model_spelling("layers=3,hidden=24,heads=4,head_dim=6,vocab=31,ffn=40");
  const auto runs = [&](std::int64_t steps, const std::string& name) {
    const Machine machine({.gpus = std::vector<Gpu>(1)});
    test::TrainingOptions options = options_of(steps);
    options.device = [](std::int64_t) { return make_cuda_device({}); };
    describe::Plan plan = test::fp32_plan();
    plan.precision = describe::Precision::bf16;
    test::train(model, plan, options);
    const std::vector<std::string> history = machine.history();
    return std::count_if(history.begin(), history.end(), [&](const std::string& operation) {
      return operation.find(" " + name) != std::string::npos;
    });
  };
  const auto each = [&](const std::string& name, std::int64_t step) {
    return runs(step, name) - runs(step - 1, name);
  };
  // A sum is followed by a norm inside each layer, before the next one, and before the head.
  CHECK(each("add_and_normalize", 2) == 0);
  CHECK(each("add_and_normalize", 3) == 2 * model.layers);
  CHECK(each("activate<", 2) == model.layers);
  CHECK(each("activate<", 3) == 0);
}

TEST_CASE("ranks with an emulated GPU each train over NCCL as ranks on processors do") {
  struct Layout {
    int stage = 0;
    std::int64_t data_parallel = 1, tensor_parallel = 1;
    bool dropout = false;
  };
  for (const auto& [stage, data_parallel, tensor_parallel, dropout] :
       {Layout{0, 2, 1}, Layout{1, 2, 1}, Layout{2, 2, 1}, Layout{3, 2, 1}, Layout{3, 2, 2},
        Layout{2, 2, 2, true}}) {
    describe::Plan plan = test::fp32_plan();
    plan.zero_stage = stage;
    plan.data_parallel = data_parallel;
    plan.tensor_parallel = tensor_parallel;
    plan.dropout = dropout;
    if (dropout) plan.attention = describe::AttentionKernel::materialized;
    plan.gradient_accumulation = 2;
    const describe::Model model = test::tiny_gpt();
    const test::Training want = test::train(model, plan, options_of(2));
    for (const Schedule& schedule : {Schedule{Policy::late, 0}, Schedule{Policy::random, 7}}) {
      const std::string label = fmt::format("stage {}, tp {}, dropout {}", stage, tensor_parallel, dropout);
      CAPTURE(label);
      CAPTURE(schedule.seed);
      const auto ranks = static_cast<std::size_t>(data_parallel * tensor_parallel);
      const Machine machine({.gpus = std::vector<Gpu>(ranks), .schedule = schedule});
      test::TrainingOptions options = options_of(2);
      options.device = [](std::int64_t rank) {
        return make_cuda_device({.ordinal = static_cast<int>(rank), .source = nccl_blocks()});
      };
      options.planes = [](ControlPlane& world, Device& device, std::span<const program::Group> groups) {
        return make_nccl_planes(world, device, groups, {});
      };
      const test::Training got = test::train(model, plan, options);
      REQUIRE(got.losses.size() == want.losses.size());
      for (std::size_t i = 0; i < got.losses.size(); ++i)
        CHECK(std::fabs(got.losses[i] - want.losses[i]) < 1e-5F);
      for (std::size_t rank = 0; rank < ranks; ++rank)
        CHECK(got.high_water[rank].device == want.high_water[rank].device);
      CHECK(got.data_parallel_bytes == want.data_parallel_bytes);
      CHECK(got.tensor_parallel_bytes == want.tensor_parallel_bytes);
      CHECK(machine.problems() == std::vector<std::string>{});
      CHECK(machine.leaks() == std::vector<std::string>{});
    }
  }
}

// What PyTorch was given as masks is drawn on the GPU too: in each layer, micro-batch and step its own.
TEST_CASE("training with dropout on an emulated GPU: losses and norms of four steps are PyTorch's to 1e-5") {
  const test::PytorchVectors vectors = test::read_pytorch_vectors("gpt_dropout.training.txt");
  const std::vector<double>& losses = vectors.at({"losses", 0});
  const std::vector<double>& norms = vectors.at({"gradient_norms", 0});
  const describe::Model model =
      describe::read_model_spelling("layers=3,hidden=20,heads=4,head_dim=5,ffn=54,vocab=37");
  for (const std::int64_t accumulation : {1, 3}) {
    describe::Plan plan = test::pytorch_plan({1, accumulation}, 1);
    plan.dropout = true;
    plan.attention = describe::AttentionKernel::materialized;
    const Machine machine({.gpus = std::vector<Gpu>(1), .schedule = {Policy::random, 3}});
    test::TrainingOptions options = test::pytorch_training_options(vectors);
    options.device = [](std::int64_t) { return make_cuda_device({}); };
    const test::Training got = test::train(model, plan, options);
    CAPTURE(accumulation);
    for (std::size_t i = 0; i < losses.size(); ++i) {
      CHECK(got.losses[i] == doctest::Approx(losses[i]).epsilon(1e-5));
      CHECK(got.norms[i] == doctest::Approx(norms[i]).epsilon(1e-5));
    }
    CHECK(machine.problems() == std::vector<std::string>{});
  }
}
