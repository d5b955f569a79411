#include <doctest/doctest.h>

#include <cmath>

#include "executor/device/cuda/cuda_device.hpp"
#include "tests/executor/training_support.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;

namespace {

void check_against_processors(const describe::Model& model, const describe::Plan& plan) {
  test::TrainingOptions options;
  options.steps = 5;
  options.settings.clip_norm = 1;
  const test::Training want = test::train(model, plan, options);
  options.device = [](std::int64_t) { return make_cuda_device({}); };
  const test::Training got = test::train(model, plan, options);
  REQUIRE(got.losses.size() == want.losses.size());
  for (std::size_t i = 0; i < got.losses.size(); ++i) {
    CAPTURE(i);
    CHECK(std::fabs(got.losses[i] - want.losses[i]) < 1e-5F);
    CHECK(got.norms[i] == doctest::Approx(want.norms[i]).epsilon(1e-4));
  }
  CHECK(got.high_water[0].device == want.high_water[0].device);
  const test::Training again = test::train(model, plan, options);
  CHECK(test::same_bits(again.losses, got.losses));
}

}  // namespace

TEST_CASE("GPU: training gives the processors' losses, in the planned memory, and the same bits again") {
  describe::Plan plan = test::fp32_plan();
  plan.gradient_accumulation = 2;
  check_against_processors(test::tiny_gpt(), plan);
  check_against_processors(test::tiny_llama(), plan);
  SUBCASE("recomputed") { plan.recompute = describe::Recompute::full; }
  SUBCASE("optimizer offloaded") { plan.offload = describe::Offload::optimizer; }
  check_against_processors(test::tiny_llama(), plan);
}
