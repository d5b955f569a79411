#include "planner/solve/suggest.hpp"

#include <doctest/doctest.h>

using namespace zeroplan;

namespace {

struct Case {
  const char* model;
  const char* hardware;
  std::int64_t gpus;
  std::int64_t micro_batch;
};

describe::PlanOptions options_of(const Case& c) {
  describe::PlanOptions options;
  options.gpus = c.gpus;
  options.micro_batch = c.micro_batch;
  return options;
}

predict::Prediction predict_options(const describe::Model& model, const describe::PlanOptions& options,
                                    const char* hardware) {
  const describe::ResolvedPlan resolved = describe::resolve_plan(options, model, hardware);
  return predict::predict(model, resolved.plan, resolved.cluster);
}

}  // namespace

TEST_CASE("what is suggested fits, with the peak that is told, and no more than is asked for") {
  for (const Case& c : {Case{"gpt2-xl", "v100-32gb", 4, 8}, Case{"gpt2-xl", "v100-32gb", 1, 64},
                        Case{"llama2-13b", "dgx-a100", 8, 4}, Case{"gpt3-175b", "dgx-h100", 8, 1},
                        Case{"llama2-70b", "rtx-4090", 8, 4}}) {
    CAPTURE(c.model);
    const describe::Model model = describe::resolve_model(c.model);
    REQUIRE(!predict_options(model, options_of(c), c.hardware).fits());
    const std::vector<solve::Suggestion> found = solve::suggest(model, options_of(c), c.hardware, 3);
    CHECK(found.size() >= 1);
    CHECK(found.size() <= 3);
    for (const solve::Suggestion& suggestion : found) {
      CAPTURE(suggestion.what);
      const predict::Prediction prediction = predict_options(model, suggestion.options, c.hardware);
      CHECK(prediction.fits() == suggestion.missing.empty());  // else it tells what nobody knows
      CHECK(!prediction.does_not_fit());
      CHECK(prediction.peak_bytes == suggestion.peak_bytes);
      CHECK(!suggestion.cost.empty());
    }
  }
}

TEST_CASE("a plan that fits needs no suggestion") {
  CHECK(solve::suggest(describe::resolve_model("gpt2"), options_of({"gpt2", "v100-32gb", 8, 1}), "v100-32gb")
            .empty());
}

// 7.5B parameters on 64 V100: plain DP takes 120 GB, P_os 31.4 GB (ZeRO, arXiv 1910.02054, Figure 1). Each
// step of the ladder that is told first moves no more bytes than plain DP.
TEST_CASE("the first suggestion is the cheapest: a ZeRO stage without more traffic") {
  describe::PlanOptions options = options_of({"", "", 64, 1});
  options.engine = "native";  // 16 bytes a parameter, as in the paper
  const std::vector<solve::Suggestion> found =
      solve::suggest(describe::resolve_model("params=7.5B"), options, "v100-32gb");
  REQUIRE(!found.empty());
  CHECK(found.front().options.zero == 1);
  CHECK(found.front().cost == "no more traffic");
}

TEST_CASE("the global batch stays when the micro-batch shrinks or tensor parallelism takes devices") {
  const describe::Model model = describe::resolve_model("llama2-7b");
  describe::PlanOptions options = options_of({"llama2-7b", "dgx-a100", 8, 16});
  const describe::ResolvedPlan start = describe::resolve_plan(options, model, "dgx-a100");
  for (const solve::Suggestion& suggestion : solve::suggest(model, options, "dgx-a100", 10)) {
    const describe::ResolvedPlan changed = describe::resolve_plan(suggestion.options, model, "dgx-a100");
    CAPTURE(suggestion.what);
    if (changed.plan.devices() == start.plan.devices())
      CHECK(changed.plan.global_batch() == start.plan.global_batch());
  }
}

// No single change is enough here. Every part of the combination that is told must be needed, so the plan
// without it does not fit.
TEST_CASE("a combination when no single change is enough") {
  const describe::Model model = describe::resolve_model("deepseek-v3");
  describe::PlanOptions options = options_of({"", "", 128, 1});
  options.zero = 3;
  const std::vector<solve::Suggestion> found = solve::suggest(model, options, "dgx-h100");
  REQUIRE(found.size() == 1);
  CHECK(predict_options(model, found[0].options, "dgx-h100").fits());
  CHECK(found[0].what.find(", ") != std::string::npos);
  describe::PlanOptions without = found[0].options;
  without.recompute.reset();
  without.partition_activations.reset();
  without.offload_activations.reset();
  CHECK(!predict_options(model, without, "dgx-h100").fits());
}
