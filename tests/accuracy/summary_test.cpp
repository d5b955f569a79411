#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/accuracy/published_runs.hpp"
#include "tests/support/command.hpp"

// reports/accuracy/ keeps how well the published runs are predicted: median, p90 and bias of every source, in
// sample and held out. It may only get better. ZEROPLAN_UPDATE_ACCURACY=1 writes it anew, which is a decision of
// its own: a commit that makes a source worse says so, and why (docs/accuracy.md).
namespace {

using nlohmann::json;
using zeroplan::test::read_file;
using zeroplan::test::run_command;
using zeroplan::test::runs_path;

const std::string kFolder = ZEROPLAN_SOURCE "/reports/accuracy/";

// Below what is printed.
constexpr double kSlack = 5e-4;

std::string answer(const std::string& format) {
  const std::string files = runs_path("measured_runs.csv") + ' ' + runs_path("vtrain_runs.csv") + ' ' +
                            runs_path("zero_paper_runs.csv");
  const auto result = run_command("accuracy " + files + " -o " + format);
  REQUIRE(result.exit_code == 0);
  return result.out;
}

json errors(const json& statistics) {
  json kept;
  for (const char* key : {"runs", "median", "percentile_90", "bias"}) kept[key] = statistics.at(key);
  return kept;
}

json figures(const json& score) {
  const json& verdicts = score.at("verdicts");
  return {{"used", score.at("used")},
          {"memory", errors(score.at("memory"))},
          {"time", errors(score.at("time"))},
          {"held_out_time", errors(score.at("held_out_time"))},
          {"verdicts",
           {{"right",
             verdicts["ran_predicted_yes"].get<int>() + verdicts["out_of_memory_predicted_no"].get<int>()},
            {"wrong",
             verdicts["ran_predicted_no"].get<int>() + verdicts["out_of_memory_predicted_yes"].get<int>()}}}};
}

json summary() {
  const json result = json::parse(answer("json")).at("result");
  json all = {{"all", figures(result.at("total"))}};
  for (const json& source : result.at("sources")) {
    if (source.at("used") > 0) all[source.at("source").get<std::string>()] = figures(source);
  }
  return all;
}

// The Markdown as it is when the command is given in the root of the sources.
std::string page() {
  std::string text = answer("md");
  const std::string root = ZEROPLAN_SOURCE "/";
  for (std::size_t at = 0; (at = text.find(root)) != std::string::npos;) text.erase(at, root.size());
  return text;
}

void check_no_worse(const json& before, const json& now) {
  CHECK(now["used"] >= before["used"]);
  for (const char* measure : {"memory", "time", "held_out_time"}) {
    CAPTURE(measure);
    CHECK(now[measure]["runs"] >= before[measure]["runs"]);
    if (before[measure]["median"].is_null()) continue;
    for (const char* key : {"median", "percentile_90", "bias"}) {
      CAPTURE(key);
      CHECK(std::abs(now[measure][key].get<double>()) <=
            std::abs(before[measure][key].get<double>()) + kSlack);
    }
  }
  CHECK(now["verdicts"]["right"] >= before["verdicts"]["right"]);
  CHECK(now["verdicts"]["wrong"] <= before["verdicts"]["wrong"]);
}

}  // namespace

TEST_CASE("predictions of the published runs are no worse than the committed summary") {
  const json now = summary();
  if (std::getenv("ZEROPLAN_UPDATE_ACCURACY") != nullptr) {
    std::ofstream(kFolder + "summary.json") << now.dump(2) << '\n';
    std::ofstream(kFolder + "summary.md") << page();
  }
  const json before = json::parse(read_file(kFolder + "summary.json"));
  REQUIRE(before.size() > 5);
  for (const auto& item : before.items()) {
    const std::string& source = item.key();
    CAPTURE(source);
    REQUIRE(now.contains(source));
    INFO(
        "ZEROPLAN_UPDATE_ACCURACY=1 writes reports/accuracy anew; say in the commit what got worse, and why");
    check_no_worse(item.value(), now[source]);
  }
}

TEST_CASE("the committed page is what the command prints") {
  INFO("ZEROPLAN_UPDATE_ACCURACY=1 writes it anew; say in the commit what got worse, and why");
  CHECK(read_file(kFolder + "summary.md") == page());
}
