#include "tests/support/plans.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "executor/communicator/devices/shared_card_planes.hpp"
#include "executor/communicator/nccl/nccl_planes.hpp"
#include "executor/device/cuda/cuda_device.hpp"
#include "nccl/nccl.hpp"
#include "planner/predict/memory.hpp"
#include "planner/predict/traffic.hpp"
#include "planner/program/compile.hpp"
#include "runtime/machine.hpp"
#include "tests/executor/training_support.hpp"

// Plans of all kinds on emulated GPUs: ranks of every other plan share one card, the others have one each and NCCL.
// ZEROPLAN_ALL_PLANS=1 runs the whole grid (scripts/check_gpu_plans).

using namespace zeroplan;
using namespace zeroplan::executor::test;
using emulation::Gpu;
using emulation::Machine;
using emulation::Policy;
using emulation::Schedule;
using executor::ArenaSize;
using executor::ControlPlane;
using executor::Device;

namespace {

constexpr std::int64_t kMostRanks = 8;
using Named = std::pair<std::string, describe::Plan>;

std::vector<Named> all_plans(const describe::Model& model) {
  std::vector<Named> plans;
  zeroplan::test::for_each_plan(model, [&](const std::string& name, const describe::Plan& plan) {
    if (plan.devices() <= kMostRanks) plans.emplace_back(name, plan);
  });
  return plans;
}

// About `count` of them, at equal distances.
std::vector<Named> some_of(const std::vector<Named>& plans, std::size_t count) {
  std::vector<Named> some;
  const std::size_t shown = std::min(count, plans.size());
  for (std::size_t i = 0; i < shown; ++i) some.push_back(plans[i * plans.size() / shown]);
  return some;
}

TrainingOptions options_of(std::int64_t steps) {
  TrainingOptions options;
  options.steps = steps;
  options.settings.clip_norm = 1;
  options.threads.timeout = std::chrono::seconds(120);
  return options;
}

Training trained(const describe::Model& model, const describe::Plan& plan, const Schedule& schedule,
                 bool one_card, TrainingOptions options) {
  const auto cards = one_card ? 1 : static_cast<std::size_t>(plan.devices());
  const Machine machine({.gpus = std::vector<Gpu>(cards), .schedule = schedule});
  options.device = [one_card](std::int64_t rank) {
    if (one_card) return executor::make_cuda_device({});
    // Over NCCL the arena is a window, in which it compares where ranks have what others reach.
    return executor::make_cuda_device({.ordinal = static_cast<int>(rank), .source = executor::nccl_blocks()});
  };
  if (one_card) {
    options.planes = executor::make_shared_card_planes;
  } else {
    options.planes = [](ControlPlane& world, Device& device, std::span<const program::Group> groups) {
      return executor::make_nccl_planes(world, device, groups, {});
    };
  }
  Training training = train(model, plan, options);
  for (const std::string& problem : machine.problems()) FAIL_CHECK(problem);
  for (const std::string& leak : machine.leaks()) FAIL_CHECK(leak);
  for (const std::string& problem : emulation::nccl_problems()) FAIL_CHECK(problem);
  CHECK(emulation::nccl_objects() == 0);
  return training;
}

void check_as_planned(const describe::Model& model, const describe::Plan& plan, const Training& training) {
  const program::StepProgram program = program::compile(model, plan);
  const predict::MemoryProfile memory = predict::read_memory(program);
  for (const ArenaSize& high_water : training.high_water) {
    CHECK(high_water.device == memory.peak);
    CHECK(high_water.host == memory.host_peak);
  }
  double data = 0, tensor = 0;
  for (const predict::TrafficEntry& entry : predict::read_traffic(program).entries) {
    (family_of(entry.group) == program::GroupKind::data_parallel ? data : tensor) += entry.bytes;
  }
  CHECK(static_cast<double>(training.data_parallel_bytes) == data);
  CHECK(static_cast<double>(training.tensor_parallel_bytes) == tensor);
}

}  // namespace

TEST_CASE(
    "plans on emulated GPUs: what is planned is allocated, what is predicted is counted, nothing is "
    "unordered") {
  const bool all = std::getenv("ZEROPLAN_ALL_PLANS") != nullptr;
  std::size_t run = 0, disagree = 0;
  for (const describe::Model& model : {tiny_gpt(), tiny_llama()}) {
    const std::vector<Named> plans = all_plans(model);
    for (const auto& [name, plan] : all ? plans : some_of(plans, 100)) {
      const std::string& label = name;
      CAPTURE(label);
      const Schedule schedule{run % 3 == 0 ? Policy::late : Policy::random, run};
      const Training training = trained(model, plan, schedule, run % 2 == 0, options_of(1));
      check_as_planned(model, plan, training);
      disagree += std::isfinite(training.losses[0]) ? 0 : 1;
      ++run;
    }
  }
  CHECK(disagree == 0);
  MESSAGE(run << " plans");
  CHECK(run >= 200);
}

TEST_CASE(
    "plans on emulated GPUs: two steps have the same bits under twelve schedules that are as unkind as "
    "events allow") {
  const describe::Model model = tiny_gpt();
  std::vector<Named> small = all_plans(model);
  std::erase_if(small, [](const Named& plan) { return plan.second.devices() > 4; });
  const std::vector<Named> plans = some_of(small, 10);
  REQUIRE(plans.size() == 10);
  std::size_t number = 0;
  for (const auto& [name, plan] : plans) {
    const std::string& label = name;
    CAPTURE(label);
    const bool one_card = number++ % 2 == 0;
    std::vector<float> first;
    for (std::uint64_t s = 0; s < 12; ++s) {
      CAPTURE(s);
      const Schedule schedule{s == 0   ? Policy::in_order
                              : s == 1 ? Policy::late
                              : s < 7  ? Policy::priority
                                       : Policy::random,
                              s * 977};
      const Training training = trained(model, plan, schedule, one_card, options_of(2));
      if (first.empty()) first = training.losses;
      CHECK(same_bits(training.losses, first));
    }
  }
}

TEST_CASE("plans on emulated GPUs: curves of twenty steps of SGD with momentum are the CPU device's") {
  struct Layout {
    int stage;
    std::int64_t data_parallel, tensor_parallel;
    describe::Recompute recompute = describe::Recompute::none;
    describe::Offload offload = describe::Offload::none;
    bool llama = false, one_card = true;
  };
  using describe::Offload;
  using describe::Recompute;
  const std::vector<Layout> layouts{{0, 1, 1},
                                    {0, 2, 1, Recompute::none, Offload::none, true, false},
                                    {1, 2, 1, Recompute::full},
                                    {1, 2, 1, Recompute::none, Offload::optimizer, true},
                                    {2, 3, 1, Recompute::selective},
                                    {2, 2, 1, Recompute::none, Offload::optimizer, false, false},
                                    {3, 2, 1, Recompute::none, Offload::none, false, false},
                                    {3, 2, 1, Recompute::full, Offload::all},
                                    {3, 2, 2, Recompute::none, Offload::none, true, false},
                                    {0, 1, 2, Recompute::full, Offload::none, true}};
  REQUIRE(layouts.size() == 10);
  for (const Layout& layout : layouts) {
    CAPTURE(layout.stage);
    CAPTURE(layout.data_parallel);
    CAPTURE(layout.tensor_parallel);
    const describe::Model model = layout.llama ? tiny_llama() : tiny_gpt();
    describe::Plan plan = fp32_plan();
    plan.optimizer = describe::find_optimizer("sgd-momentum");
    plan.zero_stage = layout.stage;
    plan.data_parallel = layout.data_parallel;
    plan.tensor_parallel = layout.tensor_parallel;
    plan.recompute = layout.recompute;
    plan.offload = layout.offload;
    TrainingOptions options = options_of(20);
    options.settings.learning_rate = 1e-2F;
    const Training want = train(model, plan, options);
    const Training got = trained(model, plan, {Policy::random, 5}, layout.one_card, options);
    REQUIRE(got.losses.size() == 20);
    CHECK(got.losses.back() < got.losses.front());
    for (std::size_t i = 0; i < got.losses.size(); ++i) {
      CHECK(std::fabs(got.losses[i] - want.losses[i]) < 1e-5F);
    }
  }
}
