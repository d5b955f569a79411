#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/command.hpp"
#include "tests/support/json_schema.hpp"

// Pages of plans: what stands in a picture or a table is what the JSON says, and it adds up. What a browser makes of them is
// looked at by tests/tools/check_pages.py.

using namespace zeroplan::test;
using nlohmann::json;

namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

const std::vector<std::string>& plans() {
  static const std::vector<std::string> list{
      "llama2-13b --hw dgx-a100 --nodes 4 --zero 3",
      "gpt2-xl --hw v100-32gb --gpus 8 --zero 0 --micro-batch 64",
      "llama2-7b --hw dgx-a100 --zero 2 --offload optimizer --recompute full --grad-accum 8",
      "gpt3-175b --hw dgx-h100 --nodes 16 --tp 8 --zero 1 --grad-accum 8 --tokens 300B --price 2",
      "params=7.5B --hw v100-32gb --gpus 64 --zero 1",
  };
  return list;
}

std::string output_of(const std::string& command) {
  CAPTURE(command);
  const CommandResult result = run_command(command);
  CAPTURE(result.err);
  CHECK(result.err.empty());
  REQUIRE(result.exit_code <= 1);
  return result.out;
}

// The specifications of a page's charts by their titles.
std::map<std::string, json> charts_of(const std::string& page) {
  constexpr std::string_view kTitle = "<figcaption>", kTitleEnd = "</figcaption>";
  constexpr std::string_view kData = "<script type=\"application/json\">", kDataEnd = "</script>";
  std::map<std::string, json> charts;
  for (std::size_t at = page.find(kTitle); at != std::string::npos; at = page.find(kTitle, at + 1)) {
    const std::size_t title = at + kTitle.size();
    const std::size_t data = page.find(kData, at) + kData.size();
    charts[page.substr(title, page.find(kTitleEnd, title) - title)] =
        json::parse(page.substr(data, page.find(kDataEnd, data) - data));
  }
  return charts;
}

std::int64_t sum_of(const json& categories) {
  std::int64_t sum = 0;
  for (const json& bytes : categories) sum += bytes.get<std::int64_t>();
  return sum;
}

}  // namespace

TEST_CASE("report: answers by its schema, and what it says adds up") {
  std::vector<Document> answers;
  for (const std::string& plan : plans()) {
    CAPTURE(plan);
    json answer = json::parse(output_of("report " + plan + " -o json"));
    const json& result = answer["result"];
    for (const json& stage : answer["memory"]["stages"]) {
      if (stage["possible"]) CHECK(sum_of(stage["by_category_bytes"]) == stage["peak_bytes"]);
    }
    std::int64_t highest = 0;
    for (const json& moment : answer["memory"]["over_step"]) {
      CHECK(sum_of(moment["by_category_bytes"]) == moment["bytes"]);
      highest = std::max(highest, moment["bytes"].get<std::int64_t>());
    }
    if (highest > 0)
      CHECK(highest + result["by_category_bytes"]["overhead"].get<std::int64_t>() == result["peak_bytes"]);
    double seconds = 0;
    for (const json& part : answer["time"]["waterfall"]) seconds += part["seconds"].get<double>();
    if (seconds > 0) CHECK(seconds == doctest::Approx(result["step_seconds"].get<double>()).epsilon(1e-9));
    answers.push_back({"report", std::move(answer)});
  }
  if (!can_validate()) {
    MESSAGE("not validated: python3-jsonschema is not installed");
    return;
  }
  for (const std::string& violation : schema_violations(answers)) FAIL_CHECK(violation);
}

TEST_CASE("report: the plan's own stage and its own cell say what fit says") {
  const std::string plan = "llama2-13b --hw dgx-a100 --nodes 4 --zero 2 --grad-accum 4";
  const json answer = json::parse(output_of("report " + plan + " -o json"));
  const json fit = json::parse(output_of("fit " + plan + " -o json"));
  CHECK(answer["result"] == fit["result"]);
  CHECK(answer["memory"]["stages"][2]["peak_bytes"] == fit["result"]["peak_bytes"]);
  const auto& cells = answer["what_if"];
  const auto own = std::find_if(cells.begin(), cells.end(), [](const json& cell) {
    return cell["recompute"] == "none" && cell["nodes"] == 4 && cell["micro_batch"] == 1;
  });
  REQUIRE(own != cells.end());
  CHECK((*own)["tokens_per_second"].get<double>() ==
        doctest::Approx(fit["result"]["tokens_per_second"].get<double>()).epsilon(1e-9));
  // Each cell's command asks for that cell.
  for (const json& cell : cells) {
    if (cell["micro_batch"] != 2 || cell["nodes"] != 8) continue;
    const std::string command = cell["command"].get<std::string>().substr(std::string("zeroplan ").size());
    const json other = json::parse(run_command(command + " -o json").out)["result"];
    CHECK(other["verdict"] == cell["verdict"]);
    if (!cell["tokens_per_second"].is_null())
      CHECK(other["tokens_per_second"].get<double>() ==
            doctest::Approx(cell["tokens_per_second"].get<double>()).epsilon(1e-9));
  }
}

TEST_CASE("report: numbers in the pictures are those of the JSON, to the last digit") {
  for (const std::string& plan : plans()) {
    CAPTURE(plan);
    const std::string page = output_of("report " + plan);
    const json answer = json::parse(output_of("report " + plan + " -o json"));
    const std::map<std::string, json> charts = charts_of(page);
    std::map<std::string, std::map<std::string, double>> bars;
    for (const json& row :
         charts.at("Memory per GPU at the peak, by category, for each stage of ZeRO")["data"][0]["values"])
      bars[row["b"].get<std::string>().substr(0, 6)][row["p"]] = row["v"];
    for (const json& stage : answer["memory"]["stages"]) {
      if (!stage["possible"]) continue;
      for (const auto& [category, bytes] : stage["by_category_bytes"].items())
        CHECK(bars[stage["name"]][category] == bytes.get<double>() / kGib);
    }
    if (!answer["memory"]["over_step"].empty()) {
      const json& rows = charts.at("Memory over the step")["data"][0]["values"];
      REQUIRE(rows.size() == answer["memory"]["over_step"].size() + 1);  // the last level, to the end
      for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
        std::int64_t drawn = 0;
        for (const auto& [key, bytes] : rows[i].items()) drawn += key == "t" ? 0 : bytes.get<std::int64_t>();
        CHECK(drawn == answer["memory"]["over_step"][i]["bytes"].get<std::int64_t>() +
                           answer["result"]["by_category_bytes"]["overhead"].get<std::int64_t>());
      }
    }
    if (!answer["what_if"].empty()) {
      const json& rows =
          charts.at("Tokens per second by micro-batch, GPUs and recomputation")["data"][0]["values"];
      REQUIRE(rows.size() == answer["what_if"].size());
      for (std::size_t i = 0; i < rows.size(); ++i)
        CHECK(rows[i]["v"] == answer["what_if"][i]["tokens_per_second"]);
    }
    CHECK(page.size() <= 600'000);
  }
}

TEST_CASE("report: a name is shown and not run, and nothing outside the page is asked for") {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/model.yaml";
  std::string text = read_file(std::string(ZEROPLAN_SOURCE) + "/models/gpt2.yaml");
  const std::size_t name = text.find("name:");
  REQUIRE(name != std::string::npos);
  text.replace(name, text.find('\n', name) - name, "name: \"</script><script>alert(1)</script><img src=x>\"");
  std::ofstream(file) << text;
  const std::string page = output_of("report " + file + " --hw dgx-a100");
  CHECK(page.find("<script>alert") == std::string::npos);
  CHECK(page.find("<img") == std::string::npos);
  CHECK(page.find("&lt;/script&gt;&lt;script&gt;alert(1)") != std::string::npos);
  CHECK(page.find("default-src 'none'") != std::string::npos);
  for (const char* outside : {"src=\"http", "href=\"http", "url(http", "@import"}) {
    CAPTURE(outside);
    CHECK(page.find(outside) == std::string::npos);
  }
}

TEST_CASE("report: Markdown holds the same tables, and --out is whole or not at all") {
  const std::string plan = "llama2-13b --hw dgx-a100 --nodes 4 --zero 3";
  const std::string text = output_of("report " + plan + " -o md");
  CHECK(text.find("| ZeRO-3 |") != std::string::npos);
  CHECK(text.find("| **step** |") != std::string::npos);
  CHECK(text.find("<svg") == std::string::npos);
  const CommandResult nowhere = run_command("report " + plan + " --out /nonexistent/plan.html");
  CHECK(nowhere.exit_code == 2);
  CHECK(nowhere.err.find("/nonexistent") != std::string::npos);
}
