#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <utility>

#include "tests/support/predicted.hpp"
#include "tests/support/reference.hpp"

// Model states of the ZeRO paper (arXiv 1910.02054v3, Sections 3.1 and 5, Figure 1, Tables 1 and 2). A model
// is a parameter count; the figures come from reading the step program.

using namespace zeroplan;
using namespace zeroplan::test;
using describe::Value;
using program::Category;

namespace {

constexpr double kCapacity = 32e9;
constexpr std::pair<std::string_view, int> kStages[] = {{"p_os", 1}, {"p_os_g", 2}, {"p_os_g_p", 3}};

// Bytes per device with K = 12: Sections 5.1 to 5.3.
double paper_states(double psi, double ranks, int stage) {
  switch (stage) {
    case 0:
      return 16 * psi;
    case 1:
      return 4 * psi + 12 * psi / ranks;
    case 2:
      return 2 * psi + 14 * psi / ranks;
    default:
      return 16 * psi / ranks;
  }
}

predict::Prediction states_of(double psi, std::int64_t dp, std::int64_t mp, int stage) {
  return predicted(fmt::format("params={:.0f}", psi), fmt::format("dp={} mp={} zero={}", dp, mp, stage));
}

double state_bytes(double psi, std::int64_t dp, std::int64_t mp, int stage) {
  return static_cast<double>(states_of(psi, dp, mp, stage).model_state_bytes);
}

int decimals(const std::string& printed) {
  const std::size_t point = printed.find('.');
  return point == std::string::npos ? 0 : static_cast<int>(printed.size() - point - 1);
}

double round_half_up(double value, int digits) {
  const double scale = std::pow(10, digits);
  return std::floor(value * scale + 0.5) / scale;
}

// table_1.rounding_rule: 7.5B rounded half up; 128B and 1T cut to the integer where no decimal is printed.
double as_printed(double value, const std::string& model, const std::string& printed) {
  const int digits = decimals(printed);
  return model == "7.5B" || digits > 0 ? round_half_up(value, digits) : std::floor(value);
}

// The largest model whose states the planner places in `budget` bytes.
double largest_psi(double budget, std::int64_t dp, std::int64_t mp, int stage) {
  double fits = 1e6;
  double too_large = 1e13;
  while (too_large - fits > 1e-7 * fits) {
    const double middle = std::floor((fits + too_large) / 2);
    (state_bytes(middle, dp, mp, stage) <= budget ? fits : too_large) = middle;
  }
  return fits;
}

}  // namespace

TEST_CASE("Z1: every cell of Table 1, by value and as it is printed") {
  const describe::Document paper = reference("zero_paper.yaml");
  int cells = 0;
  for (const Value& row : rows(paper.root, "table_1.rows")) {
    const std::string& model = text(row, "model");
    const double psi = number(row, "psi");
    const std::int64_t ranks = integer(row, "Nd");
    const std::vector<double> exact = numbers(row, "exact");
    CAPTURE(model);
    CAPTURE(ranks);
    for (const auto& pair : kStages) {
      const auto column = pair.first;
      const int stage = pair.second;
      CAPTURE(column);
      const double states = gb(state_bytes(psi, ranks, 1, stage));
      const std::string& printed = text(row, column);
      CHECK(states ==
            doctest::Approx(gb(paper_states(psi, static_cast<double>(ranks), stage))).epsilon(1e-6));
      CHECK(states == doctest::Approx(exact[static_cast<std::size_t>(stage - 1)]).epsilon(1e-6));
      CHECK(std::abs(states - std::stod(printed)) < (model == "7.5B" ? 0.0501 : 1.0));
      CHECK(as_printed(states, model, printed) == doctest::Approx(std::stod(printed)).epsilon(1e-9));
      ++cells;
    }
  }
  CHECK(cells == 54);
}

TEST_CASE("Z1: the bold cells of Table 1 are the first that fit 32 GB of model states") {
  const describe::Document paper = reference("zero_paper.yaml");
  for (const Value& bold : rows(paper.root, "table_1.bold_cells_fit_32GB.rows")) {
    const std::string& model = text(bold, "model");
    const std::string& column = text(bold, "stage");
    CAPTURE(model);
    CAPTURE(column);
    const int stage = column == "p_os" ? 1 : (column == "p_os_g" ? 2 : 3);
    std::int64_t first = 0;
    for (const Value& row : rows(paper.root, "table_1.rows")) {
      if (text(row, "model") != model || first > 0) continue;
      const std::int64_t ranks = integer(row, "Nd");
      if (state_bytes(number(row, "psi"), ranks, 1, stage) <= kCapacity) first = ranks;
    }
    CHECK(first == integer(bold, "Nd"));
  }
}

TEST_CASE("Z1: a model whose states alone come to 32 GB has no room left to train on a 32 GB device") {
  const predict::Prediction full =
      predicted("layers=158,hidden=8192,heads=64,vocab=50257", "dp=64 zero=3 micro_batch=1 recompute=full");
  CHECK(gb(static_cast<double>(full.model_state_bytes)) == doctest::Approx(32).epsilon(0.01));
  CHECK(static_cast<double>(full.model_state_bytes) <= kCapacity);
  CHECK_FALSE(full.fits());
}

TEST_CASE("Z2: Figure 1 with its split, and the volume relative to plain data parallelism") {
  const describe::Document paper = reference("zero_paper.yaml");
  const Value& figure = at(paper.root, "figure_1");
  const double psi = number(figure, "inputs.psi");
  const std::int64_t ranks = integer(figure, "inputs.Nd");
  const double baseline = states_of(psi, ranks, 1, 0).traffic_psi;
  CHECK(baseline == doctest::Approx(2).epsilon(1e-6));
  constexpr std::pair<std::string_view, int> kBars[] = {
      {"baseline", 0}, {"p_os", 1}, {"p_os_g", 2}, {"p_os_g_p", 3}};
  for (const auto& pair : kBars) {
    const std::string name(pair.first);
    const int stage = pair.second;
    CAPTURE(name);
    const predict::Prediction prediction = states_of(psi, ranks, 1, stage);
    const double states = gb(static_cast<double>(prediction.model_state_bytes));
    CHECK(states == doctest::Approx(number(figure, "per_device_GB_exact." + name)).epsilon(1e-6));
    const std::string& printed = text(figure, "per_device_GB_printed." + name);
    CHECK(round_half_up(states, decimals(printed)) == doctest::Approx(std::stod(printed)).epsilon(1e-9));
    const std::vector<double> split = numbers(figure, "split_GB." + name);
    CHECK(gb(held_bytes(prediction, Category::parameter)) == doctest::Approx(split[0]).epsilon(1e-6));
    CHECK(gb(held_bytes(prediction, Category::gradient)) == doctest::Approx(split[1]).epsilon(1e-6));
    CHECK(gb(held_bytes(prediction, Category::optimizer_state)) == doctest::Approx(split[2]).epsilon(1e-6));
    CHECK(prediction.traffic_psi / baseline ==
          doctest::Approx(number(figure, "comm_volume_relative." + name)).epsilon(1e-6));
  }
}

TEST_CASE("Z2: volume per device is the ring's exact factor (n-1)/n of the paper's limit (Section 7)") {
  const describe::Document paper = reference("zero_paper.yaml");
  const double psi = number(paper.root, "figure_1.inputs.psi");
  for (const std::int64_t ranks : {2, 3, 64, 1000}) {
    CAPTURE(ranks);
    const double factor = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
    for (int stage = 0; stage <= 3; ++stage) {
      const double sent =
          states_of(psi, ranks, 1, stage).traffic().sent_bytes(program::GroupKind::data_parallel);
      CHECK(sent == doctest::Approx((stage == 3 ? 3 : 2) * 2 * psi * factor).epsilon(1e-6));
    }
  }
}

TEST_CASE("Z3: Table 2's theory, the largest model in 32 GB at each model-parallel degree") {
  const describe::Document paper = reference("zero_paper.yaml");
  constexpr std::string_view kColumns[] = {"baseline", "p_os", "p_os_g", "p_os_g_p"};
  const std::vector<Value>& table = rows(paper.root, "table_2.rows");
  for (const Value& row : table) {
    const std::int64_t mp = integer(row, "mp");
    const std::int64_t dp = integer(row, "dp");
    CAPTURE(mp);
    CHECK(dp * mp == integer(row, "gpus"));
    const std::vector<double> theory = numbers(row, "theory_exact");
    for (int stage = 0; stage <= 3; ++stage) {
      CAPTURE(stage);
      const std::string_view column = kColumns[stage];
      const double billions = largest_psi(kCapacity, dp, mp, stage) / 1e9;
      CHECK(billions == doctest::Approx(theory[static_cast<std::size_t>(stage)]).epsilon(1e-4));
      // table_2.rounding_rule: the first row is rounded, later ones are that rounded value times MP.
      const double first = round_half_up(largest_psi(kCapacity, dp, 1, stage) / 1e9, 1);
      CHECK(first * static_cast<double>(mp) == doctest::Approx(number(row, column)).epsilon(1e-9));
    }
  }
}

TEST_CASE("Z4: with 82 % of the memory for states, P_os reaches what the paper measured, linear in MP") {
  const describe::Document paper = reference("zero_paper.yaml");
  const double at_one = largest_psi(0.82 * kCapacity, 64, 1, 1) / 1e9;
  CHECK(at_one == doctest::Approx(6.27).epsilon(0.001));
  for (const Value& row : rows(paper.root, "table_2.rows")) {
    const std::int64_t mp = integer(row, "mp");
    CAPTURE(mp);
    const double largest = largest_psi(0.82 * kCapacity, integer(row, "dp"), mp, 1) / 1e9;
    CHECK(largest == doctest::Approx(at_one * static_cast<double>(mp)).epsilon(1e-6));
    CHECK(largest == doctest::Approx(number(row, "measured_p_os")).epsilon(0.02));
  }
}
