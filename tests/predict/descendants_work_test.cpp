#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

#include "planner/describe/machine/cluster.hpp"
#include "tests/support/predicted.hpp"
#include "tests/support/reference.hpp"

// Parameters and FLOPs of Megatron-LM (Narayanan et al., arXiv 2104.04473, Section 5). A rate is the paper's
// own measurement; the work is the planner's. Pipeline parallelism divides the work and does not change it,
// so its runs are planned without. Rates, utilization and days: metrics_test.cpp.

using namespace zeroplan;
using namespace zeroplan::test;
using describe::Value;

namespace {

std::string gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
  return fmt::format("layers={},hidden={},heads={},vocab=51200", layers, hidden, heads);
}

std::string gpt(const Value& run) {
  return gpt(integer(run, "layers"), integer(run, "hidden"), integer(run, "heads"));
}

double a100_peak_tflops() { return describe::find_device("a100-80gb")->peak_bf16_tflops->value; }

}  // namespace

TEST_CASE("D2: parameters and percent of peak of Megatron's Table 1") {
  const describe::Document facts = reference("descendants.yaml");
  for (const Value& row : rows(facts.root, "megatron_sc21.table_1.rows")) {
    CAPTURE(text(row, "params_B"));
    const predict::Prediction prediction = predicted(gpt(row), "dp=1 seq=2048 micro_batch=1", "a100-80gb");
    const double billions = static_cast<double>(prediction.program().parameters) / 1e9;
    CHECK(std::abs(billions - number(row, "params_B")) <= 0.06);
    CHECK(std::abs(billions - number(row, "params_computed")) <= 0.01);
    const double percent = 100 * number(row, "tflops") / a100_peak_tflops();
    CHECK(std::abs(percent - number(row, "percent_peak")) <= 0.6);
  }
}

TEST_CASE("D2: FLOPs of an iteration with recomputation, and the iteration time at Table 1's rate") {
  const describe::Document facts = reference("descendants.yaml");
  for (const Value& row : rows(facts.root, "megatron_sc21.table_1.rows")) {
    CAPTURE(text(row, "params_B"));
    const predict::Prediction prediction =
        predicted(gpt(row),
                  fmt::format("dp={} tp={} micro_batch=1 global_batch={} seq=2048 recompute=full "
                              "attention=materialized",
                              text(row, "dp"), text(row, "t"), text(row, "batch")),
                  "a100-80gb");
    const double layers = number(row, "layers");
    const double hidden = number(row, "hidden");
    const double equation_3 = 96 * number(row, "batch") * 2048 * layers * hidden * hidden *
                              (1 + 2048 / (6 * hidden) + 51200 / (16 * layers * hidden));
    CHECK(prediction.work().hardware_all_ranks == doctest::Approx(equation_3).epsilon(1e-9));
    const double seconds = prediction.work().hardware_all_ranks / (number(row, "aggregate_pflops") * 1e15);
    CHECK(seconds == doctest::Approx(number(row, "iteration_s")).epsilon(0.002));
  }
}
