#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/json_schema.hpp"
#include "tests/support/process.hpp"

// The record of `zeroplan validate`: docs/schema/validation.schema.json, whole and as a stream of lines.

using namespace zeroplan::test;
using nlohmann::json;

namespace {

const std::string kRun = "'" ZEROPLAN_BINARY "' validate layers=2,hidden=16,heads=2,vocab=61 --seq 8 ";

void check_valid(const std::vector<Document>& documents) {
  if (!can_validate()) return;
  for (const std::string& violation : schema_violations(documents)) FAIL_CHECK(violation);
}

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
  return lines;
}

// As docs/validate.md says that a record is put together from its lines.
json record_of(const std::vector<json>& lines) {
  json record = lines.front();
  record.update(lines.back());
  record.erase("record");
  if (record["measured"].is_null()) return record;
  json& steps = record["measured"]["steps"] = json::array();
  for (const json& line : lines) {
    if (line["record"] != "step") continue;
    steps.push_back(line);
    steps.back().erase("record");
  }
  return record;
}

}  // namespace

TEST_CASE("records of runs of every outcome are by the schema") {
  // agrees, with and without collectives; not possible
  std::vector<Document> records;
  for (const char* plan : {"--dtype fp32", "--gpus 4 --tp 2 --zero 3 --dtype fp16 --offload optimizer",
                           "--dropout", "--optimizer lion"}) {
    CAPTURE(plan);
    const CommandResult result = run_shell(kRun + plan + " -o json");
    CHECK(result.exit_code != 2);
    records.push_back({"validation", json::parse(result.out)});
  }
  check_valid(records);
}

TEST_CASE("lines of a stream are the record in parts") {
  const TemporaryFolder folder;
  const std::string file = folder.file("run.jsonl");
  const CommandResult result =
      run_shell(kRun + "--gpus 2 --zero 1 --dtype fp32 --steps 5 -q -o jsonl --out '" + file + "'");
  CHECK(result.exit_code == 0);
  CHECK(result.out.empty());
  const std::vector<json> lines = lines_of(read_file(file));
  REQUIRE(lines.size() == 8);
  CHECK(lines.front()["record"] == "start");
  CHECK(lines.back()["record"] == "end");
  CHECK(lines.back()["outcome"] == "agrees");
  for (std::size_t i = 1; i < 7; ++i) CHECK(lines[i]["step"] == i);
  const json record = record_of(lines);
  std::vector<Document> documents{{"validation", record}};
  for (const json& line : lines) documents.push_back({"validation_line", line});
  const json whole = json::parse(run_shell(kRun + "--gpus 2 --zero 1 --dtype fp32 --steps 5 -o json").out);
  CHECK(record["predicted"] == whole["predicted"]);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(record["measured"]["steps"][i]["loss"] == whole["measured"]["steps"][i]["loss"]);
  }

  const CommandResult refused = run_shell(kRun + "--optimizer lion -o jsonl");
  const std::vector<json> two = lines_of(refused.out);
  REQUIRE(two.size() == 2);
  CHECK(two.back()["outcome"] == "not_possible");
  documents.push_back({"validation", record_of(two)});
  for (const json& line : two) documents.push_back({"validation_line", line});
  check_valid(documents);
  if (!can_validate()) return;
  json surplus = lines[1];
  surplus["outcome"] = "agrees";
  CHECK(schema_violations({{"validation_line", surplus}}).size() == 1);
}

TEST_CASE("the record of a run that is killed can be read up to its last step") {
  const TemporaryFolder folder;
  const std::string file = folder.file("run.jsonl");
  run_shell("timeout --signal=KILL 2 " + kRun + "--dtype fp32 --steps 1000000 -q -o jsonl --out '" + file +
            "'");
  const std::string text = read_file(file);
  REQUIRE(text.find('\n') != std::string::npos);
  const std::vector<json> lines = lines_of(text.substr(0, text.rfind('\n') + 1));
  REQUIRE(lines.size() > 2);
  CHECK(lines.front()["record"] == "start");
  for (std::size_t i = 1; i < lines.size(); ++i) REQUIRE(lines[i]["step"] == i);
}

TEST_CASE("a disk that is full does not end the run, and is told at its end") {
  const CommandResult result = run_shell(kRun + "--dtype fp32 --steps 2 -o jsonl --out /dev/full");
  CHECK(result.exit_code == 2);
  CHECK(result.err.find("step 3/3") != std::string::npos);
  CHECK(result.err.find("--out: \"/dev/full\" cannot be written: No space left on device") !=
        std::string::npos);
}
