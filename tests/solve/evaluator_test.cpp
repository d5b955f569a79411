#include "planner/solve/evaluator.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <fstream>

#include "planner/predict/prediction.hpp"
#include "tests/support/command.hpp"

using namespace zeroplan;
using solve::Evaluation;
using solve::Evaluator;
using solve::Neighbour;

namespace {

void check_near(double value, double expected) { CHECK(value == doctest::Approx(expected).epsilon(1e-12)); }

// Every neighbour says what its options come to when they are resolved and predicted.
int compare(const describe::Model& model, const describe::PlanOptions& options, const std::string& hardware,
            std::int64_t most_nodes) {
  Evaluator evaluator(model, options, hardware);
  int legal = 0;
  for (std::int64_t nodes = 1; nodes <= most_nodes; nodes *= 2) {
    for (const std::int64_t tp : {1, 2, 3, 8}) {
      for (int stage = 0; stage <= 3; ++stage) {
        for (const std::int64_t micro_batch : {1, 2}) {
          for (const std::int64_t accumulation : {5, 1, 2, 3, 4, 40, 1000}) {
            const Neighbour neighbour{stage, nodes, tp, micro_batch, accumulation};
            const std::string name = fmt::format("{} x {}, tp {}, zero {}, micro-batch {} x {}", nodes,
                                                 hardware, tp, stage, micro_batch, accumulation);
            CAPTURE(name);
            const std::optional<Evaluation> found = evaluator.evaluate(neighbour);
            std::optional<predict::Prediction> expected;
            try {
              const describe::ResolvedPlan resolved =
                  describe::resolve_plan(evaluator.options_for(neighbour), model, hardware);
              expected = predict::predict(model, resolved.plan, resolved.cluster);
            } catch (const ConfigurationError&) {
            }
            REQUIRE(found.has_value() == expected.has_value());
            if (!found) continue;
            ++legal;
            CHECK(found->memory.peak == expected->peak_bytes);
            CHECK(found->memory.capacity == expected->capacity_bytes);
            CHECK(found->memory.host_per_node == expected->host_bytes_per_node);
            CHECK(found->verdict == expected->verdict);
            CHECK(found->tokens_per_step == expected->program().tokens_per_step);
            check_near(found->work.hardware, expected->work().hardware);
            check_near(found->work.model_all_ranks, expected->work().model_all_ranks);
            check_near(found->sent_data_parallel_bytes, expected->traffic().data_parallel_bytes());
            check_near(found->sent_tensor_parallel_bytes, expected->traffic().tensor_parallel_bytes());
            check_near(found->to_host_bytes, expected->traffic().to_host_bytes);
            check_near(found->time.seconds, expected->time.seconds);
            check_near(found->time.waiting_seconds, expected->time.waiting_seconds);
            for (std::size_t part = 0; part < predict::kExposedParts; ++part) {
              CHECK(std::abs(found->time.exposed_seconds[part] - expected->time.exposed_seconds[part]) <=
                    1e-12 * expected->time.seconds);
            }
          }
        }
      }
    }
  }
  return legal;
}

}  // namespace

TEST_CASE("evaluator: plans that are put together from sections are those that are predicted in full") {
  const describe::Model model = describe::resolve_model("llama2-7b");
  describe::PlanOptions options;
  SUBCASE("an engine's own") { CHECK(compare(model, options, "dgx-a100", 4) > 300); }
  SUBCASE("recomputation") {
    options.recompute = describe::Recompute::full;
    options.engine = "native";
    CHECK(compare(model, options, "dgx1", 2) > 200);
  }
  SUBCASE("offload") {
    options.offload = describe::Offload::optimizer;
    options.host_memory = 1'000'000'000'000;
    CHECK(compare(model, options, "dgx-a100", 2) > 150);
  }
  SUBCASE("of other engines") {
    for (const char* engine : {"megatron", "fsdp2", "native"}) {
      options.engine = engine;
      CHECK(compare(model, options, "dgx-a100", 2) > 80);
    }
  }
  SUBCASE("P_a+cpu over a slow network") {
    options.offload_activations = true;
    options.tp = 2;
    options.engine = "deepspeed";
    CHECK(compare(model, options, "dgx1", 2) > 80);
  }
  SUBCASE("hybrid sharding") {
    options.engine = "fsdp2";
    options.shard_inside_node = true;
    CHECK(compare(model, options, "dgx-h100", 4) > 80);
  }
  SUBCASE("only a number of parameters") {
    CHECK(compare(describe::resolve_model("params=7.5B"), options, "dgx-a100", 2) > 300);
  }
}

// What ranks wait for one another depends on what is around a section: such plans are predicted one by one.
TEST_CASE("evaluator: on a machine whose ranks are uneven, too") {
  const std::string preset = describe::read_text_file(ZEROPLAN_SOURCE "/hardware_profiles/a100-80gb.yaml");
  const test::TemporaryFolder folder;
  const std::string uneven = folder.file("uneven.yaml");
  const describe::Model model = describe::resolve_model("llama2-7b");
  std::ofstream(uneven) << preset << R"(
calibrated:
  - devices: 8
    source: a test
    skew: 0.1
    kernels:
      - op: matmul
        operands: [bf16, bf16, none, bf16]
        m: [1024]
        n: [1024]
        k: [1024]
        gflops: [200000]
)";
  describe::PlanOptions options;
  options.tp = 8;
  Evaluator evaluator(model, options, uneven);
  Neighbour neighbour = evaluator.base();
  neighbour.gradient_accumulation = 10;
  const std::optional<Evaluation> found = evaluator.evaluate(neighbour);
  REQUIRE(found);
  CHECK(found->time.waiting_seconds > 0);
  CHECK(compare(model, {}, uneven, 1) > 100);
}

TEST_CASE("evaluator: plans that differ in their accumulation only are compiled once") {
  const describe::Model model = describe::resolve_model("gpt2-xl");
  describe::PlanOptions options;
  options.zero = 2;
  Evaluator evaluator(model, options, "dgx-a100");
  Neighbour neighbour = evaluator.base();
  CHECK(neighbour.zero_stage == 2);
  for (neighbour.gradient_accumulation = 1; neighbour.gradient_accumulation <= 100;
       ++neighbour.gradient_accumulation) {
    CHECK(evaluator.evaluate(neighbour).has_value());
  }
  CHECK(evaluator.compiled() == 1);
  neighbour.zero_stage = 3;
  CHECK(evaluator.evaluate(neighbour).has_value());
  CHECK(evaluator.compiled() == 2);
}
