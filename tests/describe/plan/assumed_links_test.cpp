#include "planner/describe/plan/assumed_links.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "tests/describe/plan/plan_support.hpp"

namespace describe = zeroplan::describe;

namespace {

// What was assumed of `key`; empty where nothing was.
std::string assumed(const std::string& hardware, std::int64_t gpus, std::int64_t tp, const std::string& key) {
  describe::PlanOptions options;
  options.gpus = gpus;
  options.tp = tp;
  const auto resolved = describe::resolve_plan(options, describe::resolve_model("gpt3-175b"), hardware);
  for (const describe::Assumption& assumption : resolved.assumptions) {
    if (assumption.key == key) return assumption.value + ": " + assumption.reason;
  }
  return "";
}

}  // namespace

// The rates between DGX-2 nodes were worked out from the ZeRO paper's own bars.
TEST_CASE("rates that nobody measured on the machine are listed where they are used") {
  const std::string network = assumed("dgx2", 64, 16, "network");
  CHECK(network.find("12.5 to 50 GB/s: of dgx2, not measured there") == 0);
  CHECK(network.find("worked out from step times") != std::string::npos);
  CHECK(network.find("arXiv 1910.02054v3 Figure 2") != std::string::npos);
  CHECK(assumed("dgx2", 16, 16, "network").empty());     // one node
  CHECK(assumed("dgx-a100", 64, 8, "network").empty());  // nothing assumed
  CHECK(!assumed("p4de", 64, 8, "network").empty());     // measured on p4d
  CHECK(!assumed("dgx-h100", 8, 4, "links").empty());    // four H100: measured on H200
  CHECK(assumed("dgx-h100", 8, 8, "links").empty());
}
