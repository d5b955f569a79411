#include "planner/solve/strategies.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "planner/solve/suggest.hpp"

using namespace zeroplan;

namespace {

describe::PlanOptions options_of(std::int64_t gpus, std::int64_t micro_batch) {
  describe::PlanOptions options;
  options.gpus = gpus;
  options.micro_batch = micro_batch;
  return options;
}

const solve::Strategy& row_of(const std::vector<solve::Strategy>& rows, std::string_view name) {
  return *std::find_if(rows.begin(), rows.end(),
                       [&](const solve::Strategy& row) { return row.name == name; });
}

double seconds_per_sequence(const predict::Prediction& prediction, const describe::Plan& plan) {
  return prediction.time.seconds / static_cast<double>(plan.global_batch());
}

}  // namespace

TEST_CASE("strategies: the rows of the paper, on the devices of the user") {
  const describe::Model model = describe::resolve_model("params=7.5B");
  describe::PlanOptions options = options_of(64, 1);
  options.engine = "native";  // 16 bytes a parameter, as in the paper
  const std::vector<solve::Strategy> rows = solve::strategies(model, options, "v100-32gb");
  REQUIRE(rows.size() == 9);
  for (const solve::Strategy& row : rows) {
    CAPTURE(row.name);
    REQUIRE(row.prediction.has_value());
    CHECK(row.resolved->plan.devices() == 64);
  }
  // GB of model states: Figure 1, rounded there to a tenth.
  const auto states = [&](std::size_t row) {
    return static_cast<double>(rows[row].prediction->model_state_bytes) / kGB;
  };
  CHECK(states(0) == doctest::Approx(120).epsilon(0.001));
  CHECK(states(2) == doctest::Approx(31.4).epsilon(0.002));
  CHECK(states(3) == doctest::Approx(16.6).epsilon(0.003));
  CHECK(states(4) == doctest::Approx(1.9).epsilon(0.02));
}

TEST_CASE("a strategy that breaks a rule says which") {
  const describe::Model model = describe::resolve_model("gpt2-xl");  // 25 heads
  const describe::PlanOptions options = options_of(16, 1);
  const std::vector<solve::Strategy> rows = solve::strategies(model, options, "dgx2");
  CHECK(!rows[1].prediction);
  CHECK(rows[1].not_possible.find("25") != std::string::npos);
}

// A degree over two nodes of DGX H100 sends every layer's all-reduces over the network: twice as slow as one
// inside a node, which fits as well.
TEST_CASE("the tensor-parallel degree of a strategy is the fastest that fits inside a node, for each alone") {
  const describe::Model model = describe::resolve_model("llama2-70b");
  describe::PlanOptions options;
  options.nodes = 4;
  const std::vector<solve::Strategy> rows = solve::strategies(model, options, "dgx-h100");
  for (const solve::Strategy& row : rows) {
    CAPTURE(row.name);
    REQUIRE(row.resolved.has_value());
    CHECK(row.resolved->plan.tensor_parallel <= 8);
  }
  const solve::Strategy& partitioned = row_of(rows, "ZeRO-2 + MP + P_a");
  CHECK(partitioned.prediction->fits());
  for (const std::int64_t degree : {2, 4, 8, 16, 32}) {
    describe::PlanOptions other = partitioned.options;
    other.tp = degree;
    const describe::ResolvedPlan resolved = describe::resolve_plan(other, model, "dgx-h100");
    const predict::Prediction prediction = predict::predict(model, resolved.plan, resolved.cluster);
    CAPTURE(degree);
    const bool slower = seconds_per_sequence(prediction, resolved.plan) >=
                        seconds_per_sequence(*partitioned.prediction, partitioned.resolved->plan);
    CHECK((slower || !prediction.fits() || degree > 8));
    if (degree > 8) CHECK(slower);
  }
}

TEST_CASE("a degree that the user sets stays") {
  describe::PlanOptions options;
  options.nodes = 4;
  options.tp = 16;
  const auto rows = solve::strategies(describe::resolve_model("llama2-70b"), options, "dgx-h100");
  CHECK(row_of(rows, "DP").resolved->plan.tensor_parallel == 1);
  for (const char* name : {"MP", "ZeRO-3", "ZeRO-2 + MP + P_a"}) {
    CHECK(row_of(rows, name).resolved->plan.tensor_parallel == 16);
  }
}

TEST_CASE("the fastest is one that fits, and none that fits has more tokens per second") {
  describe::PlanOptions options;
  options.nodes = 4;
  const auto rows = solve::strategies(describe::resolve_model("llama2-70b"), options, "dgx-h100");
  const solve::Strategy* fastest = solve::fastest_that_fits(rows);
  REQUIRE(fastest != nullptr);
  CHECK(fastest->prediction->fits());
  const auto seconds_of = [](const solve::Strategy& row) {
    return seconds_per_sequence(*row.prediction, row.resolved->plan);
  };
  for (const solve::Strategy& row : rows) {
    CAPTURE(row.name);
    if (row.prediction->fits()) CHECK(seconds_of(row) >= seconds_of(*fastest));
  }
  // A model of which only the number of parameters is known has no time.
  CHECK(solve::fastest_that_fits(
            solve::strategies(describe::resolve_model("params=7.5B"), options, "dgx-h100")) == nullptr);
}

TEST_CASE("a stage that the engine does not have is a row that says so, and no suggestion") {
  const describe::Model model = describe::resolve_model("llama2-7b");
  describe::PlanOptions options;
  options.engine = "fsdp2";
  const auto rows = solve::strategies(model, options, "dgx-a100");
  CHECK(!row_of(rows, "ZeRO-1").prediction);
  CHECK(row_of(rows, "ZeRO-1").not_possible.find("a stage that fsdp2 has: 0, 2, 3") != std::string::npos);
  CHECK(row_of(rows, "ZeRO-2").prediction.has_value());

  options.engine = "megatron";
  const auto found = solve::suggest(model, options, "dgx-a100", 10);
  CHECK(!found.empty());
  for (const solve::Suggestion& suggestion : found) CHECK(suggestion.options.zero.value_or(0) <= 1);
}
