#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

#include "planner/describe/model/model.hpp"
#include "planner/predict/prediction.hpp"
#include "tests/support/predicted.hpp"

using namespace zeroplan;
using namespace zeroplan::test;
using program::Category;
using program::GroupKind;
using program::Op;

namespace {

// Divisible by every degree below, so that the formulas hold without padding.
constexpr double kPsi = 7'500'000'000;

predict::Prediction of_states(const std::string& words) {
  return predicted("params=7.5B", words, "a100-80gb");
}

double sent(const predict::Prediction& prediction, GroupKind group, Op collective) {
  double sum = 0;
  for (const predict::TrafficEntry& entry : prediction.traffic().entries) {
    const bool scalars = entry.phase == program::Phase::step && entry.collective == Op::all_reduce;
    if (entry.group == group && entry.collective == collective && !scalars) sum += entry.sent_bytes;
  }
  return sum;
}

}  // namespace

// MiCS (arXiv 2205.00119, Sections 3.2 and 3.4): states are divided over the partition group of p of n devices; parameters
// are gathered in it twice and gradients scattered, and over n/p replicas each device's part is all-reduced.
TEST_CASE("hybrid sharding: states and traffic are those of MiCS") {
  for (const double n : {16.0, 64.0, 512.0}) {
    for (const double p : {2.0, 8.0, 16.0}) {
      if (p == n) continue;
      CAPTURE(n);
      CAPTURE(p);
      const predict::Prediction prediction =
          of_states(fmt::format("gpus={} zero=3 shard={} engine=native dtype=bf16 bucket=1MiB", n, p));
      const double two_bytes = 2 * kPsi;
      CHECK(held_bytes(prediction, Category::parameter) == doctest::Approx(two_bytes / p).epsilon(1e-6));
      CHECK(held_bytes(prediction, Category::gradient) == doctest::Approx(two_bytes / p).epsilon(1e-6));
      CHECK(held_bytes(prediction, Category::optimizer_state) ==
            doctest::Approx(12 * kPsi / p).epsilon(1e-6));
      CHECK(sent(prediction, GroupKind::shard, Op::all_gather) ==
            doctest::Approx(2 * two_bytes * (p - 1) / p).epsilon(1e-6));
      CHECK(sent(prediction, GroupKind::shard, Op::reduce_scatter) ==
            doctest::Approx(two_bytes * (p - 1) / p).epsilon(1e-6));
      const double r = n / p;
      CHECK(sent(prediction, GroupKind::replica, Op::all_reduce) ==
            doctest::Approx(2 * (r - 1) / r * two_bytes / p).epsilon(1e-6));
      CHECK(sent(prediction, GroupKind::data_parallel, Op::all_gather) == 0);
    }
  }
}

TEST_CASE("hybrid sharding: gradients cross replicas once a step, or with each micro-batch") {
  const std::string words = "gpus=64 zero=3 shard=8 dtype=bf16 grad_accum=4 ";
  const double part = 2 * kPsi / 8;
  CHECK(sent(of_states(words + "engine=native"), GroupKind::replica, Op::all_reduce) ==
        doctest::Approx(2 * 7.0 / 8 * part).epsilon(1e-6));
  // FSDP2 keeps gradients in fp32, the type of its parameters.
  CHECK(sent(of_states(words + "engine=fsdp2"), GroupKind::replica, Op::all_reduce) ==
        doctest::Approx(4 * 2 * 7.0 / 8 * 2 * part).epsilon(1e-6));
}

TEST_CASE("hybrid sharding: at stage 1 parameters are gathered inside the shard, once a step") {
  const predict::Prediction prediction = of_states("gpus=64 zero=1 shard=8 engine=megatron dtype=bf16");
  CHECK(held_bytes(prediction, Category::optimizer_state) == doctest::Approx(12 * kPsi / 8).epsilon(1e-6));
  CHECK(sent(prediction, GroupKind::shard, Op::all_gather) ==
        doctest::Approx(2 * kPsi * 7 / 8).epsilon(1e-6));
}

// ZeRO++ (arXiv 2306.10209, Section 3.2; reference/descendants.yaml): a full copy per node costs 2 Psi / (GPUs of a node)
// bytes a GPU more, and the backward all-gather leaves the network between nodes: M -> 0.
TEST_CASE("hpZ: a second copy inside a node, and backward gathers from it") {
  for (const int inside : {2, 8, 16}) {
    CAPTURE(inside);
    const std::string words = "gpus=64 zero=3 engine=deepspeed dtype=fp16 ";
    const predict::Prediction plain = of_states(words);
    const predict::Prediction second = of_states(words + fmt::format("secondary_shard={}", inside));
    CHECK(held_bytes(second, Category::parameter) - held_bytes(plain, Category::parameter) ==
          doctest::Approx(2 * kPsi / inside).epsilon(1e-6));
    const double gather = 2 * kPsi * 63 / 64;
    CHECK(sent(plain, GroupKind::data_parallel, Op::all_gather) == doctest::Approx(2 * gather).epsilon(1e-6));
    CHECK(sent(second, GroupKind::data_parallel, Op::all_gather) == doctest::Approx(gather).epsilon(1e-6));
    CHECK(sent(second, GroupKind::secondary_shard, Op::all_gather) ==
          doctest::Approx(2 * kPsi * (inside - 1) / inside).epsilon(1e-6));
  }
}

TEST_CASE("hybrid sharding over a slow network is faster than sharding over all, and takes more memory") {
  const auto on = [](const std::string& more) {
    return predicted("llama2-13b", "nodes=16 zero=3 engine=fsdp2 recompute=full " + more, "p4d");
  };
  const predict::Prediction all = on("");
  const predict::Prediction inside = on("shard=8");
  REQUIRE(all.time.is_known());
  CHECK(inside.time.seconds < all.time.seconds);
  CHECK(inside.memory().peak > all.memory().peak);
}
