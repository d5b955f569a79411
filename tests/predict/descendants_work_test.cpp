#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

#include "planner/describe/cluster.hpp"
#include "tests/support/predicted.hpp"
#include "tests/support/reference.hpp"

// Parameters and FLOPs of Megatron-LM (Narayanan et al., arXiv 2104.04473, Section 5) and model FLOPs of
// Korthikanti et al. (arXiv 2205.05198, Appendix A). A rate or a time is the papers' own measurement; the
// work is the planner's. Predicting the rate belongs to the capability that answers how fast. Pipeline
// parallelism divides the work and does not change it, so its runs are planned without.

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

double a100_peak_tflops() { return describe::find_device("a100-80gb").peak_bf16_tflops->value; }

}  // namespace

TEST_CASE("D2: parameters and percent of peak of Megatron's Table 1") {
  const describe::Document facts = reference("descendants.yaml");
  for (const Value& row : rows(facts.root, "megatron_sc21.table_1.rows")) {
    CAPTURE(text(row, "params_B"));
    const predict::Prediction prediction = predicted(gpt(row), "dp=1 seq=2048 micro_batch=1", "a100-80gb");
    const double billions = static_cast<double>(prediction.program.parameters) / 1e9;
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
    CHECK(prediction.work.hardware_all_ranks == doctest::Approx(equation_3).epsilon(1e-9));
    const double seconds = prediction.work.hardware_all_ranks / (number(row, "aggregate_pflops") * 1e15);
    CHECK(seconds == doctest::Approx(number(row, "iteration_s")).epsilon(0.002));
  }
}

TEST_CASE("D3: days for 300B tokens at Table 2's measured rates") {
  const describe::Document facts = reference("descendants.yaml");
  for (const Value& row : rows(facts.root, "megatron_sc21.table_2_ptd_vs_zero3.rows")) {
    CAPTURE(text(row, "scheme"));
    CAPTURE(text(row, "gpus"));
    const bool small = text(row, "params_B") == "174.6";
    const std::string shape = small ? gpt(96, 12288, 96) : gpt(105, 20480, 128);
    const std::string layout = text(row, "scheme") == "zero3" ? "tp=1 zero=3" : "tp=8";
    const predict::Prediction prediction =
        predicted(shape,
                  fmt::format("gpus={} {} micro_batch={} global_batch={} seq=2048 recompute=full "
                              "attention=materialized",
                              text(row, "gpus"), layout, text(row, "microbatch"), text(row, "batch")),
                  "a100-80gb");
    CHECK(std::abs(static_cast<double>(prediction.program.parameters) / 1e9 - number(row, "params_B")) <=
          0.06);
    const double steps = 300e9 / static_cast<double>(prediction.program.tokens_per_step);
    const double rate = number(row, "gpus") * number(row, "tflops") * 1e12;
    const double days = steps * prediction.work.hardware_all_ranks / rate / 86400;
    CHECK(std::abs(days - number(row, "days")) <= 1.1);
    CHECK(std::abs(days - number(row, "days_computed")) <= 0.1);
  }
}

TEST_CASE("D4: model FLOPs give the MFU of Korthikanti's Table 5 at the measured iteration times") {
  const describe::Document facts = reference("descendants.yaml");
  for (const Value& run : rows(facts.root, "korthikanti_2022.runs.rows")) {
    CAPTURE(text(run, "model"));
    const predict::Prediction prediction =
        predicted(gpt(run),
                  fmt::format("dp=1 tp=8 micro_batch={} global_batch={} seq=2048 recompute=selective "
                              "attention=materialized",
                              text(run, "microbatch"), text(run, "batch")),
                  "a100-80gb");
    const double available = number(run, "gpus") * a100_peak_tflops() * 1e12 * number(run, "present_s");
    const double mfu = 100 * prediction.work.model_all_ranks / available;
    CHECK(std::abs(mfu - number(run, "mfu_pct")) <= (text(run, "model") == "22B" ? 0.2 : 0.1));
    CHECK(std::abs(mfu - number(run, "mfu_computed")) <= 0.1);
  }
}

// The paper's HFU adds 12 B L s^2 h for selective recomputation (1 + s/3h in place of 1 + s/6h). The program
// executes less: only the scores, 2 B L s^2 h, because the attention's output is kept. So the paper's HFU is
// a convention that the capability "how fast" may print beside ours; it is not what this program executes.
TEST_CASE("D4: selective recomputation executes one score product more, the paper's HFU counts six") {
  const describe::Document facts = reference("descendants.yaml");
  for (const Value& run : rows(facts.root, "korthikanti_2022.runs.rows")) {
    CAPTURE(text(run, "model"));
    const predict::Work work =
        predicted(gpt(run),
                  fmt::format("dp=1 tp=8 micro_batch={} global_batch={} seq=2048 recompute=selective "
                              "attention=materialized",
                              text(run, "microbatch"), text(run, "batch")),
                  "a100-80gb")
            .work;
    const double score_product =
        2 * number(run, "batch") * number(run, "layers") * 2048 * 2048 * number(run, "hidden");
    CHECK(work.hardware_all_ranks - work.model_all_ranks == doctest::Approx(score_product).epsilon(1e-6));
    const double available = number(run, "gpus") * a100_peak_tflops() * 1e12 * number(run, "present_s");
    const double hfu = 100 * (work.model_all_ranks + 6 * score_product) / available;
    CHECK(std::abs(hfu - number(run, "hfu_pct")) <= (text(run, "model") == "22B" ? 0.2 : 0.1));
  }
}
