#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <string>

#include "tests/describe/plan/plan_support.hpp"
#include "tests/support/predicted.hpp"
#include "tests/support/reference.hpp"

// The runs of the ZeRO paper (arXiv 1910.02054v3, Tables 5 to 10): real shapes on V100-32GB, stage P_os+g
// with checkpointing, with the attention kernels of the time: scores in memory, dropout. Sequences are 1024
// tokens and the vocabulary 50257 (zero_paper.yaml says why).

using namespace zeroplan;
using namespace zeroplan::test;
using describe::Value;
using program::Category;

namespace {

constexpr double kCapacityGB = 32;

void for_each_run(const Value& paper, const std::function<void(const Value&)>& visit) {
  int runs = 0;
  for (const describe::Entry& figure : at(paper, "appendix_runs").entries) {
    if (figure.key.rfind("figure_", 0) != 0 || figure.value.find("rows") == nullptr) continue;
    for (const Value& run : rows(figure.value, "rows")) {
      CAPTURE(figure.key);
      CAPTURE(text(run, "model"));
      visit(run);
      ++runs;
    }
  }
  CHECK(runs == 48);
}

std::string shape_of(const Value& run) {
  return fmt::format("layers={},hidden={},heads={},vocab=50257", text(run, "layers"), text(run, "hidden"),
                     text(run, "heads"));
}

std::string layout_of(const Value& run) {
  return fmt::format("gpus={} mp={} micro_batch={} seq=1024", text(run, "gpus"), text(run, "mp"),
                     text(run, "batch"));
}

predict::Prediction run_with(const Value& run, const std::string& words) {
  return predicted(shape_of(run),
                   layout_of(run) + " attention=materialized dropout=on recompute=full " + words);
}

// C4 of Table 3: P_os+g and P_a. Without model parallelism there is nothing to divide checkpoints over.
predict::Prediction with_partitioned_activations(const Value& run) {
  return run_with(run, integer(run, "mp") > 1 ? "zero=2 partition_activations=on" : "zero=2");
}

double states_gb(const predict::Prediction& prediction) {
  return gb(static_cast<double>(prediction.model_state_bytes));
}

double checkpoints_gb(const predict::Prediction& prediction) {
  return gb(peak_bytes(prediction, Category::checkpoint));
}

double label_billions(const Value& run) { return std::stod(text(run, "model")); }

}  // namespace

TEST_CASE("Z5: the parameters of every run, and their distance from the label") {
  const describe::Document paper = reference("zero_paper.yaml");
  for_each_run(paper.root, [](const Value& run) {
    const predict::Prediction prediction = run_with(run, "zero=0");
    const double billions = static_cast<double>(prediction.program().parameters) / 1e9;
    CHECK(std::abs(billions - number(run, "pfull")) <= 0.00051);

    const double layers = number(run, "layers");
    const double hidden = number(run, "hidden");
    const double blocks_only = 12 * layers * hidden * hidden / 1e9;
    const double label = label_billions(run);
    const double nearer = std::min(std::abs(blocks_only - label), std::abs(billions - label)) / label;
    if (text(run, "model") == "1.38B") {
      CHECK(nearer == doctest::Approx(0.12).epsilon(0.1));
    } else {
      CHECK(nearer <= 0.025);
      CHECK(std::abs(billions - label) / label <= 0.07);
    }
  });
}

TEST_CASE("Z6: every run keeps the rules, and a run that breaks one is refused") {
  const describe::Document paper = reference("zero_paper.yaml");
  for_each_run(paper.root, [](const Value& run) {
    const describe::ResolvedPlan resolved = planned(shape_of(run), layout_of(run), "v100-32gb");
    CHECK(resolved.plan.global_batch() == integer(run, "total_batch"));
    CHECK(resolved.plan.data_parallel == integer(run, "dp"));
    const std::int64_t mp = integer(run, "mp");
    const std::int64_t gpus = integer(run, "gpus");
    const auto refused = [&](const std::string& shape, std::int64_t devices, std::int64_t degree) {
      return !testing::refusal(fmt::format("gpus={} mp={}", devices, degree), shape, "v100-32gb").empty();
    };
    CHECK_FALSE(refused(shape_of(run), gpus, mp));
    if (mp > 1) CHECK(refused(shape_of(run), gpus + 1, mp));
    const std::int64_t too_many = 2 * integer(run, "heads");
    CHECK(refused(shape_of(run), too_many, too_many));
    const std::string odd_heads = fmt::format("layers={},hidden={},heads={},vocab=50257", text(run, "layers"),
                                              text(run, "hidden"), integer(run, "hidden") - 1);
    CHECK_THROWS_AS(describe::resolve_model(odd_heads), ConfigurationError);
  });
}

TEST_CASE("Z7: states and partitioned checkpoints of every ZeRO run fit 32 GB") {
  const describe::Document paper = reference("zero_paper.yaml");
  for_each_run(paper.root, [](const Value& run) {
    if (text(run, "who") != "zero") return;
    const predict::Prediction prediction = with_partitioned_activations(run);
    CHECK(states_gb(prediction) == doctest::Approx(number(run, "states")).epsilon(0.005));
    CHECK(checkpoints_gb(prediction) == doctest::Approx(number(run, "ckpt_pa")).epsilon(0.005));
    CHECK(states_gb(prediction) + checkpoints_gb(prediction) <= kCapacityGB);
    CHECK(prediction.fits());
  });
}

TEST_CASE(
    "Z7: 170B leaves under 2 GB beside states and P_a, so the paper moves the checkpoints to the host") {
  const describe::Document paper = reference("zero_paper.yaml");
  const Value& run = row(rows(paper.root, "appendix_runs.figure_8.rows"), "model", "170B");
  const predict::Prediction divided = with_partitioned_activations(run);
  const double used = states_gb(divided) + checkpoints_gb(divided);
  CHECK(used == doctest::Approx(30.1).epsilon(0.005));
  CHECK(kCapacityGB - used < 2);
  CHECK(divided.verdict == predict::Verdict::fits_tightly);
  const predict::Prediction offloaded = run_with(run, "zero=2 offload_activations=on host_memory=1536GB");
  CHECK(checkpoints_gb(offloaded) == 0);
  CHECK(offloaded.verdict == predict::Verdict::fits);
}

TEST_CASE("Z8: 60B on 128 devices without P_a is refused at batch 32 and fits at batch 8") {
  const describe::Document paper = reference("zero_paper.yaml");
  for (const Value& run : rows(paper.root, "appendix_runs.figure_8.rows")) {
    if (text(run, "config") != "C3" && text(run, "config") != "C4") continue;
    const predict::Prediction whole = run_with(run, "zero=2");
    CHECK(states_gb(whole) == doctest::Approx(14.26).epsilon(0.005));
    if (text(run, "batch") == "32") {
      CHECK(checkpoints_gb(whole) == doctest::Approx(40.27).epsilon(0.001));
      CHECK_FALSE(whole.fits());
    } else {
      CHECK(states_gb(whole) + checkpoints_gb(whole) == doctest::Approx(24.3).epsilon(0.005));
      CHECK(whole.fits());
    }
  }
}

TEST_CASE("Z11: Figure 3, states of 60B fall with the number of devices and free room for the batch") {
  const describe::Document paper = reference("zero_paper.yaml");
  double before = kCapacityGB;
  for (const Value& run : rows(paper.root, "appendix_runs.figure_3.rows")) {
    CAPTURE(text(run, "gpus"));
    const predict::Prediction prediction = with_partitioned_activations(run);
    const double states = states_gb(prediction);
    CHECK(states == doctest::Approx(number(run, "states")).epsilon(0.005));
    CHECK(states < before);
    CHECK(prediction.fits());
    before = states;
  }
}
