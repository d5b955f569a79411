#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/predicted.hpp"
#include "tests/support/reference.hpp"

// The speed that the ZeRO paper (arXiv 1910.02054v3) shows in Figures 2, 3, 4 and 8, TFLOPS per GPU, on its
// own cluster: 25 DGX-2. The bars are digitised (zero_paper.yaml, figure_results), the runs are those of its
// appendix. The paper does not say what its TFLOPS count; they are taken as hardware FLOPs, with the forward
// that is computed again. Its runs are Megatron-LM of 2019 under DeepSpeed's states: the engine megatron-v1.

using namespace zeroplan;
using namespace zeroplan::test;
using describe::Value;

namespace {

// A bar of a figure.
struct Bar {
  std::string name;  // "figure_2 60B zero"
  std::int64_t devices = 0;
  bool is_zero = false;
  double measured = 0, predicted = 0;  // TFLOPS per GPU
  bool fits = false;

  double error() const { return predicted / measured - 1; }
};

// Table 3. All have constant buffers and contiguous memory.
std::string words_of_config(const std::string& config) {
  if (config == "C1") return "zero=1";
  if (config == "C2") return "zero=1 partition_activations=on";
  if (config == "C3") return "zero=2";
  if (config == "C4") return "zero=2 partition_activations=on";
  if (config == "C5") return "zero=2 offload_activations=on";
  throw std::out_of_range("no configuration " + config + " in Table 3");
}

// Outside Figure 8 ZeRO is C4; 170B fits with C5 only; without model parallelism there is nothing to divide.
std::string config_of(const Value& run) {
  if (run.find("config") != nullptr) return text(run, "config");
  if (text(run, "model") == "170B") return "C5";
  return integer(run, "mp") > 1 ? "C4" : "C3";
}

predict::Prediction run_as(const Value& run, const std::string& words) {
  const std::string shape = fmt::format("layers={},hidden={},heads={},vocab=50257", text(run, "layers"),
                                        text(run, "hidden"), text(run, "heads"));
  const std::string layout = fmt::format("gpus={} mp={} micro_batch={} seq=1024", text(run, "gpus"),
                                         text(run, "mp"), text(run, "batch"));
  return predicted(
      shape,
      layout + " dtype=fp16 engine=megatron-v1 attention=materialized dropout=on recompute=full " + words,
      "zero-paper");
}

predict::Prediction run_in_config(const Value& run, const std::string& config) {
  return run_as(run, words_of_config(config) + " contiguous_memory=on");
}

Bar make_bar(const std::string& figure, const Value& run, double measured) {
  Bar bar;
  bar.is_zero = text(run, "who") == "zero";
  const std::string config = bar.is_zero ? config_of(run) : "";
  bar.name = fmt::format("{} {} {}", figure, text(run, "model"), bar.is_zero ? "zero" : "baseline");
  if (figure == "figure_3") bar.name += " " + text(run, "gpus");
  if (figure == "figure_8") bar.name += " " + config;
  bar.devices = integer(run, "gpus");
  bar.measured = measured;
  const predict::Prediction prediction = bar.is_zero ? run_in_config(run, config) : run_as(run, "zero=0");
  REQUIRE(prediction.time.is_known());
  bar.predicted = static_cast<double>(prediction.work().hardware) / prediction.time.seconds / 1e12;
  bar.fits = prediction.fits();
  return bar;
}

// The appendix's run of the model in a figure.
const Value& run_of(const Value& paper, const std::string& figure, const std::string& model,
                    const std::string& who) {
  for (const Value& run : rows(paper, "appendix_runs." + figure + ".rows")) {
    if (text(run, "model") == model + "B" && text(run, "who") == who) return run;
  }
  throw std::out_of_range(fmt::format("no run of {}B, {} in {}", model, who, figure));
}

std::vector<Bar> figure_2(const Value& paper) {
  std::vector<Bar> bars;
  for (const Value& group : rows(paper, "figure_results.figure_2.rows")) {
    for (const std::string who : {"zero", "baseline"}) {
      bars.push_back(make_bar("figure_2", run_of(paper, "figure_2", text(group, "model_B"), who),
                              number(group, who + "_tflops")));
    }
  }
  return bars;
}

std::vector<Bar> figure_3(const Value& paper) {
  std::vector<Bar> bars;
  for (const Value& bar : rows(paper, "figure_results.figure_3.rows")) {
    const Value& run = row(rows(paper, "appendix_runs.figure_3.rows"), "gpus", text(bar, "gpus"));
    REQUIRE(text(run, "batch") == text(bar, "batch"));
    bars.push_back(make_bar("figure_3", run, number(bar, "tflops_per_gpu")));
  }
  return bars;
}

std::vector<Bar> figure_4(const Value& paper) {
  std::vector<Bar> bars;
  for (const Value& bar : rows(paper, "figure_results.figure_4.rows")) {
    bars.push_back(make_bar("figure_4", run_of(paper, "figure_4", text(bar, "model_B"), text(bar, "who")),
                            number(bar, "tflops_per_gpu")));
  }
  return bars;
}

// The bars that ran, in the order of the appendix.
std::vector<Bar> figure_8(const Value& paper) {
  std::vector<Bar> bars;
  for (const Value& run : rows(paper, "appendix_runs.figure_8.rows")) {
    for (const Value& bar : rows(paper, "figure_results.figure_8.rows")) {
      if (text(bar, "config") != text(run, "config")) continue;
      if (text(bar, "model_B") + "B" != text(run, "model")) continue;
      bars.push_back(make_bar("figure_8", run, number(bar, "tflops_per_gpu")));
    }
  }
  return bars;
}

std::vector<Bar> all_bars(const Value& paper) {
  std::vector<Bar> bars = figure_2(paper);
  for (const std::vector<Bar>& more : {figure_3(paper), figure_4(paper), figure_8(paper)}) {
    bars.insert(bars.end(), more.begin(), more.end());
  }
  return bars;
}

// Pairs that were measured to differ by more than `least`: how many, and those whose order is predicted the
// other way round.
struct Order {
  int pairs = 0;
  std::vector<std::string> reversed;  // "faster > slower"

  std::string text() const { return fmt::format("{}", fmt::join(reversed, "; ")); }
};

Order order_of(const std::vector<Bar>& bars, double least = 0.15) {
  Order order;
  for (const Bar& faster : bars) {
    for (const Bar& slower : bars) {
      if (faster.measured <= (1 + least) * slower.measured) continue;
      ++order.pairs;
      if (faster.predicted <= slower.predicted) order.reversed.push_back(faster.name + " > " + slower.name);
    }
  }
  return order;
}

// A bar that is further off than it should be, and the most that it is.
struct Exception {
  std::string_view name;
  double least, most;  // error
};

void check_within(const Bar& bar, double tolerance, std::span<const Exception> exceptions = {}) {
  CAPTURE(bar.name);
  CAPTURE(bar.predicted);
  CAPTURE(bar.measured);
  const auto exception = std::find_if(exceptions.begin(), exceptions.end(),
                                      [&](const Exception& other) { return other.name == bar.name; });
  if (exception == exceptions.end()) {
    CHECK(std::abs(bar.error()) <= tolerance);
    return;
  }
  CHECK(std::abs(bar.error()) > tolerance);  // else it is no exception any more
  CHECK(bar.error() >= exception->least);
  CHECK(bar.error() <= exception->most);
}

// ZeRO runs that are off by more than 15 %. In Figure 8 the batches of C1, C2 and C3 are inferred; measured,
// C2's step is 1.9 times C1's with twice the batch, which leaves nothing for the traffic that is the same in
// both. 170B is in two figures. Of the others it is not known: shapes that are alike were measured from 27 to
// 39 TFLOPS on this cluster, and 8B is as fast as 6B with a third more traffic for the same work.
constexpr std::array<Exception, 9> kZeroExceptions{{{"figure_2 40B zero", 0, 0.20},
                                                    {"figure_2 170B zero", 0, 0.24},
                                                    {"figure_3 60B zero 64", 0, 0.21},
                                                    {"figure_4 8B zero", -0.18, 0},
                                                    {"figure_4 13B zero", 0, 0.18},
                                                    {"figure_8 60B zero C1", -0.17, 0},
                                                    {"figure_8 60B zero C2", 0, 0.30},
                                                    {"figure_8 60B zero C3", 0, 0.35},
                                                    {"figure_8 170B zero C5", 0, 0.24}}};

}  // namespace

TEST_CASE("paper time: 19 of 28 bars of ZeRO within 15 %, the others by name; all baselines within 16 %") {
  const describe::Document paper = reference("zero_paper.yaml");
  int zero = 0, baseline = 0;
  std::vector<double> errors;
  for (const Bar& bar : all_bars(paper.root)) {
    ++(bar.is_zero ? zero : baseline);
    if (bar.is_zero) {
      check_within(bar, 0.15, kZeroExceptions);
      errors.push_back(std::abs(bar.error()));
    } else {
      check_within(bar, 0.16);
    }
  }
  CHECK(zero == 28);
  CHECK(baseline == 11);
  std::sort(errors.begin(), errors.end());
  CHECK((errors[13] + errors[14]) / 2 <= 0.11);
}

TEST_CASE("paper time: Figure 2, ZeRO is faster at every size; all 131 pairs in order") {
  const describe::Document paper = reference("zero_paper.yaml");
  const std::vector<Bar> bars = figure_2(paper.root);
  REQUIRE(bars.size() == 18);
  for (std::size_t i = 0; i < bars.size(); i += 2) {
    CAPTURE(bars[i].name);
    CHECK(bars[i].predicted > bars[i + 1].predicted);
    // Where model parallelism leaves a node the gain is several times.
    if (bars[i].name != "figure_2 1.5B zero" && bars[i].name != "figure_2 8B zero") {
      CHECK(bars[i].predicted > 2.5 * bars[i + 1].predicted);
    }
  }
  const Order order = order_of(bars);
  CHECK(order.pairs == 131);
  CHECK(order.text().empty());
}

TEST_CASE("paper time: Figure 3 is superlinear from 64 to 256 GPUs, and hardly more at 400") {
  const describe::Document paper = reference("zero_paper.yaml");
  const std::vector<Bar> bars = figure_3(paper.root);
  REQUIRE(bars.size() == 4);
  const auto gain = [&](std::size_t from, std::size_t to) {
    return bars[to].predicted * static_cast<double>(bars[to].devices) /
           (bars[from].predicted * static_cast<double>(bars[from].devices));
  };
  CHECK(gain(0, 1) > 2.3);  // measured 2.92
  CHECK(gain(0, 2) > 4.7);  // measured 6.07
  CHECK(gain(0, 3) > 7.6);  // measured 8.90
  // Per GPU it then grows by 3 %, with the batch, where 6 % less was measured.
  CHECK(bars[3].predicted / bars[2].predicted < 1.035);
  CHECK(order_of(bars).reversed.empty());
}

TEST_CASE("paper time: Figure 4, without model parallelism, 34 of 35 pairs in order") {
  const describe::Document paper = reference("zero_paper.yaml");
  const std::vector<Bar> bars = figure_4(paper.root);
  const Order order = order_of(bars);
  CHECK(order.pairs == 35);
  CHECK(order.text() == "figure_4 8B zero > figure_4 1.5B zero");
  const auto least = std::min_element(bars.begin(), bars.end(),
                                      [](const Bar& a, const Bar& b) { return a.predicted < b.predicted; });
  CHECK(least->name == "figure_4 1.38B baseline");
}

TEST_CASE("paper time: Figure 8, the order of C1 to C5") {
  const describe::Document paper = reference("zero_paper.yaml");
  std::vector<Bar> bars = figure_8(paper.root);
  REQUIRE(bars.size() == 6);
  const Order order = order_of(bars);
  CHECK(order.pairs == 13);
  CHECK(order.reversed.empty());
  // P_a+cpu was 9 % slower than P_a with the same batch; its copies are predicted to take 1 %.
  const auto named = [&](std::string_view name) {
    return std::find_if(bars.begin(), bars.end(), [&](const Bar& bar) { return bar.name == name; });
  };
  const double slower = named("figure_8 60B zero C5")->predicted / named("figure_8 60B zero C4")->predicted;
  CHECK(slower < 1);
  CHECK(slower > 0.98);
}

TEST_CASE("paper time: what ran fits, and the crosses of Figure 8 do not") {
  const describe::Document paper = reference("zero_paper.yaml");
  for (const Bar& bar : all_bars(paper.root)) {
    CAPTURE(bar.name);
    CHECK(bar.fits);
  }
  const Value& run = row(rows(paper.root, "appendix_runs.figure_8.rows"), "model", "170B");
  const Value& crosses = row(rows(paper.root, "figure_results.figure_8.rows"), "tflops_per_gpu", "OOM");
  int marks = 0;
  for (const std::string config : {"C1", "C2", "C3", "C4", "C5"}) {
    CAPTURE(config);
    const bool is_out = text(crosses, "config").find(config) != std::string::npos;
    marks += is_out ? 1 : 0;
    CHECK(run_in_config(run, config).fits() == !is_out);
  }
  CHECK(marks == 4);
}
