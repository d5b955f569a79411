#include "planner/predict/metrics.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <string>

#include "planner/accuracy/modelled_run.hpp"
#include "tests/accuracy/published_runs.hpp"
#include "tests/describe/text/csv_table.hpp"
#include "tests/support/predicted.hpp"
#include "tests/support/reference.hpp"

// Rates, utilization and days that the papers print, from their own times or rates and the planner's work:
// Megatron-LM (Narayanan et al., arXiv 2104.04473), Korthikanti et al. (arXiv 2205.05198), PaLM (arXiv
// 2204.02311), and the runs of measured_runs.csv that print both a speed and a utilization. Pipeline
// parallelism divides the work and does not change it, so its runs are planned without, on as many devices as
// the paper had.

using namespace zeroplan;
using namespace zeroplan::test;
using describe::Value;
using predict::TrainingMetrics;
using predict::TrainingStep;

namespace {

constexpr double kPoint = 0.01;

std::string gpt(const Value& run) {
  return fmt::format("layers={},hidden={},heads={},vocab=51200", text(run, "layers"), text(run, "hidden"),
                     text(run, "heads"));
}

// The work of a plan on A100s, as a step of `devices` devices that takes `seconds`.
TrainingStep step_of(const std::string& model, const std::string& words, std::int64_t devices,
                     double seconds) {
  const describe::ResolvedPlan resolved = planned(model, words, "a100-80gb");
  const predict::Prediction prediction = predicted(model, words, "a100-80gb");
  TrainingStep step;
  step.seconds = seconds;
  step.work = prediction.work();
  step.tokens = prediction.program().tokens_per_step;
  step.sequences = resolved.plan.global_batch();
  step.devices = devices;
  step.peak_flops_per_s =
      1e12 * predict::peak_tflops(resolved.cluster.device, resolved.plan.precision)->value;
  step.recompute = resolved.plan.recompute;
  return step;
}

// A run of Korthikanti's Table 5. Its pipeline does not change the FLOPs of all ranks.
std::string korthikanti_layout(const Value& run, const char* recompute) {
  return fmt::format("dp=1 tp=8 micro_batch={} global_batch={} seq=2048 recompute={} attention=materialized",
                     text(run, "microbatch"), text(run, "batch"), recompute);
}

}  // namespace

TEST_CASE("a step by hand") {
  TrainingStep step;
  step.seconds = 2;
  step.work.model = 3e12;
  step.work.model_attention = 1e12;
  step.work.hardware = 4e12;
  step.work.model_all_ranks = 24e12;
  step.work.hardware_all_ranks = 32e12;
  step.tokens = 4096;
  step.sequences = 4;
  step.devices = 8;
  step.peak_flops_per_s = 10e12;
  TrainingMetrics metrics = training_metrics(step);
  CHECK(metrics.tokens_per_s == 2048);
  CHECK(metrics.tokens_per_s_per_gpu == 256);
  CHECK(metrics.sequences_per_s == 2);
  CHECK(metrics.model_flops_per_s == 12e12);
  CHECK(metrics.model_flops_per_s_per_gpu == 1.5e12);
  CHECK(metrics.hardware_flops_per_s == 16e12);
  CHECK(metrics.hardware_flops_per_s_per_gpu == 2e12);
  CHECK(*metrics.mfu == doctest::Approx(0.15));
  CHECK(*metrics.hfu == doctest::Approx(0.2));
  CHECK(!metrics.hfu_korthikanti);
  CHECK(!metrics.days);
  CHECK(!metrics.cost);
  CHECK(!metrics.cost_per_billion_tokens);

  step.recompute = describe::Recompute::selective;
  metrics = training_metrics(step, {2048LL * 86400 * 10, 1.5});
  CHECK(*metrics.hfu_korthikanti == doctest::Approx(0.15 * 4 / 3));
  CHECK(*metrics.steps == 432000);
  CHECK(*metrics.days == doctest::Approx(10));
  CHECK(*metrics.gpu_hours == doctest::Approx(10 * 24 * 8));
  CHECK(*metrics.cost == doctest::Approx(10 * 24 * 8 * 1.5));
  CHECK(*metrics.cost_per_billion_tokens == doctest::Approx(1e9 / 256 / 3600 * 1.5));

  step.peak_flops_per_s = 0;
  metrics = training_metrics(step, {std::nullopt, 1.5});
  CHECK(!metrics.mfu);
  CHECK(!metrics.hfu);
  CHECK(!metrics.hfu_korthikanti);
  CHECK(!metrics.cost);
  CHECK(metrics.cost_per_billion_tokens.has_value());
}

TEST_CASE("D3: days for 300B tokens at Table 2's measured rates") {
  const describe::Document facts = reference("descendants.yaml");
  const double tokens_asked = 300e9;
  for (const Value& row : rows(facts.root, "megatron_sc21.table_2_ptd_vs_zero3.rows")) {
    CAPTURE(text(row, "scheme"));
    CAPTURE(text(row, "gpus"));
    const bool small = text(row, "params_B") == "174.6";
    const std::string shape = small ? "layers=96,hidden=12288,heads=96,vocab=51200"
                                    : "layers=105,hidden=20480,heads=128,vocab=51200";
    const std::string layout = text(row, "scheme") == "zero3" ? "tp=1 zero=3" : "tp=8";
    TrainingStep step =
        step_of(shape,
                fmt::format("gpus={} {} micro_batch={} global_batch={} seq=2048 recompute=full "
                            "attention=materialized",
                            text(row, "gpus"), layout, text(row, "microbatch"), text(row, "batch")),
                integer(row, "gpus"), 1);
    step.seconds = step.work.hardware_all_ranks / (number(row, "gpus") * number(row, "tflops") * 1e12);
    const TrainingMetrics metrics =
        training_metrics(step, {static_cast<std::int64_t>(tokens_asked), std::nullopt});
    CHECK(metrics.hardware_flops_per_s_per_gpu == doctest::Approx(number(row, "tflops") * 1e12));
    CHECK(*metrics.days == doctest::Approx(number(row, "days")).epsilon(0.02));
    CHECK(std::abs(*metrics.days - number(row, "days_computed")) <= 0.1);
    CHECK(*metrics.gpu_hours == doctest::Approx(*metrics.days * 24 * number(row, "gpus")));
    // The paper's equation 4, 8TP/nX, leaves attention and logits out.
    const double equation_4 = 8 * tokens_asked * number(row, "params_B") * 1e9 /
                              (number(row, "gpus") * number(row, "tflops") * 1e12);
    CHECK(equation_4 / 86400 == doctest::Approx(*metrics.days).epsilon(0.04));
    CHECK(equation_4 / 86400 < *metrics.days);
  }
}

TEST_CASE("D4: MFU and HFU of Korthikanti's Table 5 from its iteration times") {
  const describe::Document facts = reference("descendants.yaml");
  for (const Value& run : rows(facts.root, "korthikanti_2022.runs.rows")) {
    CAPTURE(text(run, "model"));
    const TrainingStep step = step_of(gpt(run), korthikanti_layout(run, "selective"), integer(run, "gpus"),
                                      number(run, "present_s"));
    const TrainingMetrics metrics = training_metrics(step);
    CHECK(std::abs(*metrics.mfu - number(run, "mfu_pct") * kPoint) <= 0.3 * kPoint);
    CHECK(std::abs(*metrics.mfu - number(run, "mfu_computed") * kPoint) <= 0.1 * kPoint);
    CHECK(std::abs(*metrics.hfu_korthikanti - number(run, "hfu_pct") * kPoint) <= 0.3 * kPoint);
    CHECK(std::abs(*metrics.hfu_korthikanti - number(run, "hfu_computed") * kPoint) <= 0.1 * kPoint);
  }
}

// The paper's HFU adds 12 B L s^2 h for selective recomputation (1 + s/3h in place of 1 + s/6h). The program
// executes less: only the scores, 2 B L s^2 h, because the attention's output is kept.
TEST_CASE("D4: selective recomputation executes one score product more, the paper's HFU counts six") {
  const describe::Document facts = reference("descendants.yaml");
  for (const Value& run : rows(facts.root, "korthikanti_2022.runs.rows")) {
    CAPTURE(text(run, "model"));
    const predict::Work work = predicted(gpt(run), korthikanti_layout(run, "selective"), "a100-80gb").work();
    const double score_product =
        2 * number(run, "batch") * number(run, "layers") * 2048 * 2048 * number(run, "hidden");
    CHECK(work.hardware_all_ranks - work.model_all_ranks == doctest::Approx(score_product).epsilon(1e-6));
    CHECK(8 * work.model_attention == doctest::Approx(6 * score_product).epsilon(1e-6));
  }
}

// The same models with full recomputation, where both counts agree: 4/3 of the model's FLOPs, the logits
// once.
TEST_CASE("D4: full recomputation executes Megatron's equation 3 in Korthikanti's times") {
  const describe::Document facts = reference("descendants.yaml");
  for (const Value& run : rows(facts.root, "korthikanti_2022.runs.rows")) {
    CAPTURE(text(run, "model"));
    const TrainingStep step = step_of(gpt(run), korthikanti_layout(run, "full"), integer(run, "gpus"),
                                      number(run, "full_recompute_s"));
    const TrainingMetrics metrics = training_metrics(step);
    CHECK(!metrics.hfu_korthikanti);
    const double layers = number(run, "layers");
    const double hidden = number(run, "hidden");
    const double equation_3 = 96 * number(run, "batch") * 2048 * layers * hidden * hidden *
                              (1 + 2048 / (6 * hidden) + 51200 / (16 * layers * hidden));
    CHECK(*metrics.hfu ==
          doctest::Approx(equation_3 / number(run, "gpus") / number(run, "full_recompute_s") / 312e12));
  }
}

TEST_CASE("D9: MFU of Megatron-Turing NLG as the PaLM paper has it, from its iteration time") {
  const describe::Document facts = reference("descendants.yaml");
  const Value& published = row(rows(facts.root, "palm_mfu.table_3.rows"), "model", "Megatron-Turing NLG");
  for (const Value& run : rows(facts.root, "mt_nlg_530b.runs.rows")) {
    CAPTURE(text(run, "gpus"));
    const TrainingStep step = step_of("layers=105,hidden=20480,heads=128,vocab=51200",
                                      fmt::format("dp={} tp=8 micro_batch=1 global_batch=1920 seq=2048 "
                                                  "recompute=full attention=materialized",
                                                  text(run, "dp")),
                                      integer(run, "gpus"), number(run, "iteration_s"));
    const TrainingMetrics metrics = training_metrics(step);
    CHECK(metrics.hardware_flops_per_s_per_gpu ==
          doctest::Approx(number(run, "tflops_computed") * 1e12).epsilon(0.001));
    if (text(run, "gpus") != "2240") continue;
    CHECK(metrics.tokens_per_s == doctest::Approx(65430).epsilon(0.001));
    CHECK(std::abs(*metrics.mfu - number(published, "mfu_pct") * kPoint) <= 0.1 * kPoint);
  }
}

// llm-foundry prints tokens/s beside the MFU it makes of 6N + 12Lds FLOPs a token. N has the learned
// positions in it, s x d parameters that no product is made with.
TEST_CASE("MFU and model TFLOPS of llm-foundry's runs from their tokens per second") {
  int checked = 0;
  for (const auto& row : testing::read_csv(runs_path("measured_runs.csv"))) {
    if (row.at("source") != "llm-foundry") continue;
    CAPTURE(row.at("id"));
    const auto modelled = accuracy::model_run(measured_run(row.at("id")));
    const auto* run = std::get_if<accuracy::ModelledRun>(&modelled);
    if (run == nullptr) continue;
    const predict::Prediction prediction = predict::predict(run->model, run->plan, run->cluster);
    const auto predicted_step = training_step(prediction, run->plan, run->cluster.device);
    REQUIRE(predicted_step);
    TrainingStep step = *predicted_step;
    const double rate = std::stod(row.at("measured_tokens_per_s_per_gpu"));
    step.seconds = static_cast<double>(step.tokens) / static_cast<double>(step.devices) / rate;
    const TrainingMetrics metrics = training_metrics(step);
    CHECK(metrics.tokens_per_s_per_gpu == doctest::Approx(rate));
    const double of_positions = 6 * std::stod(row.at("seq_len")) * std::stod(row.at("hidden")) * rate;
    const double mfu = std::stod(row.at("measured_mfu")) - of_positions / step.peak_flops_per_s;
    CHECK(std::abs(*metrics.mfu - mfu) <= 0.2 * kPoint);
    const double tflops = std::stod(row.at("measured_tflops_per_gpu")) - of_positions / 1e12;
    CHECK(std::abs(metrics.model_flops_per_s_per_gpu / 1e12 - tflops) <= 1);  // printed as whole ones
    ++checked;
  }
  CHECK(checked >= 100);
}
