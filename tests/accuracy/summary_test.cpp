#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/accuracy/published_runs.hpp"
#include "tests/support/command.hpp"

// reports/accuracy/ keeps how well the published runs are predicted. It may only get better; after a change
// that is wanted, ZEROPLAN_UPDATE_GOLDEN=1 writes it anew.
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

json figures(const json& score) {
  const json& verdicts = score.at("verdicts");
  return {{"used", score.at("used")},
          {"memory", {{"runs", score["memory"]["runs"]}, {"median", score["memory"]["median"]}}},
          {"time", {{"runs", score["time"]["runs"]}, {"median", score["time"]["median"]}}},
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
  for (const char* measure : {"memory", "time"}) {
    CAPTURE(measure);
    CHECK(now[measure]["runs"] >= before[measure]["runs"]);
    if (before[measure]["median"].is_null()) continue;
    CHECK(now[measure]["median"].get<double>() <= before[measure]["median"].get<double>() + kSlack);
  }
  CHECK(now["verdicts"]["right"] >= before["verdicts"]["right"]);
  CHECK(now["verdicts"]["wrong"] <= before["verdicts"]["wrong"]);
}

}  // namespace

TEST_CASE("predictions of the published runs are no worse than the committed summary") {
  const json now = summary();
  if (std::getenv("ZEROPLAN_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(kFolder + "summary.json") << now.dump(2) << '\n';
    std::ofstream(kFolder + "summary.md") << page();
  }
  const json before = json::parse(read_file(kFolder + "summary.json"));
  REQUIRE(before.size() > 5);
  for (const auto& item : before.items()) {
    const std::string& source = item.key();
    CAPTURE(source);
    REQUIRE(now.contains(source));
    check_no_worse(item.value(), now[source]);
  }
}

TEST_CASE("the committed page is what the command prints") {
  CHECK(read_file(kFolder + "summary.md") == page());
}
