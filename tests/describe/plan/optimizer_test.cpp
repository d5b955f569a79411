#include "planner/describe/plan/optimizer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "tests/describe/plan/plan_support.hpp"

using namespace zeroplan;
using namespace zeroplan::describe;
using zeroplan::testing::contains;
using zeroplan::testing::problems_of;

namespace {

std::string reading(const std::string& parts) {
  const std::string head = "schema: zeroplan.optimizer/1\nname: mine\ntitle: Mine\nsource: a paper\n";
  return problems_of([&] { read_optimizer_yaml(parse_yaml(head + parts, "mine.yaml")); });
}

Bytes bytes_per_parameter(const std::string& name) {
  Bytes total = 0;
  for (const OptimizerPart& part : find_optimizer(name)->parts) total += part.bytes_per_parameter;
  return total;
}

}  // namespace

TEST_CASE("optimizers hold the bytes of their papers") {
  // ZeRO paper, Section 3.1: K = 12 with the fp32 master, of which momentum and variance are 8.
  CHECK(bytes_per_parameter("adam") == 8);
  CHECK(bytes_per_parameter("sgd") == 0);
  CHECK(bytes_per_parameter("sgd-momentum") == 4);
  CHECK(bytes_per_parameter("lion") == 4);
  // arXiv 2110.02861: two states of one byte each, with fp32 scales by block.
  const Optimizer quantised = find_optimizer("adam8bit");
  REQUIRE(quantised.parts.size() == 2);
  for (const OptimizerPart& part : quantised.parts) {
    CHECK(part.bytes_per_parameter == 1);
    CHECK(part.block_elements == 256);
    CHECK(part.block_bytes == 4);
  }
  const Optimizer factored = find_optimizer("adafactor");
  REQUIRE(factored.parts.size() == 1);
  CHECK(factored.parts[0].factored);
}

TEST_CASE("an optimizer is found by name or alias, and every shipped one can be read") {
  CHECK(find_optimizer("adamw")->name == "adam");
  CHECK(find_optimizer("FusedAdam")->name == "adam");
  CHECK(find_optimizer("SGD_Momentum")->name == "sgd-momentum");
  CHECK(find_optimizer("AdamW_8bit")->name == "adam8bit");
  CHECK(optimizer_names().size() == 6);
  for (const std::string& name : optimizer_names()) {
    CAPTURE(name);
    const Optimizer optimizer = find_optimizer(name);
    CHECK(optimizer.name == name);
    CHECK_FALSE(optimizer.source.empty());
  }
  const std::string wrong = problems_of([] { find_optimizer("adafacter"); });
  CHECK(contains(wrong, "--optimizer: found \"adafacter\""));
  CHECK(contains(wrong, "nearest: adafactor"));
}

TEST_CASE("an optimizer file is read strictly") {
  CHECK(reading("parts: []\n").empty());
  CHECK(reading("parts:\n  - {name: momentum, bytes_per_parameter: 4}\n").empty());
  CHECK(contains(reading(""), "parts: missing"));
  CHECK(contains(reading("parts: []\nbytes: 4\n"), "mine.yaml:6: bytes: unknown key"));
  CHECK(contains(reading("parts:\n  - {name: m, bytes_per_paramter: 4}\n"), "nearest: bytes_per_parameter"));
  CHECK(
      contains(reading("parts:\n  - {name: m, bytes_per_parameter: 012}\n"), "parts[0].bytes_per_parameter"));
  CHECK(contains(reading("parts:\n  - {name: m, bytes_per_parameter: 1, block_elements: 256}\n"),
                 "belong together"));
  CHECK(contains(reading("parts: [{}, {}, {}, {}, {}]\n"), "at most 4"));
  CHECK(contains(reading("parts: 4\n"), "expected a list"));
}
