#include "planner/predict/verdict.hpp"

#include <doctest/doctest.h>

#include "planner/predict/prediction.hpp"
#include "planner/solve/suggest.hpp"

using namespace zeroplan;
using describe::Figure;
using predict::Prediction;
using predict::Verdict;

namespace {

void set_host_memory(describe::Cluster& cluster, const std::optional<Bytes>& bytes) {
  std::optional<Figure> memory;
  if (bytes) {
    memory.emplace();
    memory->value = static_cast<double>(*bytes);
    memory->source = "the test";
  }
  edit(cluster.node).host_memory_bytes = std::move(memory);
}

struct Question {
  std::string model;
  std::string hardware;
  describe::PlanOptions options;
  std::optional<Bytes> host_memory;  // of a node; none: taken out of the description

  Prediction answer() const {
    const describe::Model shape = describe::resolve_model(model);
    describe::ResolvedPlan resolved = describe::resolve_plan(options, shape, hardware);
    set_host_memory(resolved.cluster, host_memory);
    return predict::predict(shape, resolved.plan, resolved.cluster);
  }
};

// GPT-3 with all states on the host of one node of 8 A100: 175e9 parameters x (2 + 2 + 12) bytes are 2,602
// GiB. A DGX A100 has 1 or 2 TB.
Question gpt3_offloaded() {
  Question question{"gpt3-175b", "dgx-a100", {}, {}};
  question.options.engine = "native";
  question.options.zero = 3;
  question.options.offload = describe::Offload::all;
  question.options.recompute = describe::Recompute::full;
  return question;
}

}  // namespace

TEST_CASE("states in a host memory that is not described: it cannot be said") {
  const Prediction prediction = gpt3_offloaded().answer();
  CHECK(prediction.peak_bytes < prediction.capacity_bytes);
  CHECK(static_cast<double>(prediction.host_bytes_per_node) / static_cast<double>(kGiB) ==
        doctest::Approx(2602).epsilon(0.002));
  CHECK(prediction.verdict == Verdict::cannot_say);
  CHECK_FALSE(prediction.fits());
  CHECK_FALSE(prediction.does_not_fit());
  REQUIRE(prediction.missing.size() == 1);
  CHECK(prediction.missing[0].key == predict::kHostMemory);
  CHECK(prediction.missing[0].sentence.find("260") != std::string::npos);
  CHECK(prediction.missing[0].how.find("--host-memory") != std::string::npos);
}

// findings/user.md, W1: 2,602 GiB were said to fit one node of each of these. A DGX A100's own submissions to
// MLPerf state 2 TB, and no other has more.
TEST_CASE("GPT-3 with everything offloaded does not fit one node, by its host memory") {
  const describe::Model model = describe::resolve_model("gpt3-175b");
  for (const char* machine : {"dgx-a100", "dgx-h100", "p5", "p4d"}) {
    for (const char* engine : {"native", "deepspeed"}) {
      CAPTURE(machine);
      describe::PlanOptions options = gpt3_offloaded().options;
      options.engine = engine;
      const describe::ResolvedPlan resolved = describe::resolve_plan(options, model, machine);
      const Prediction prediction = predict::predict(model, resolved.plan, resolved.cluster);
      CHECK(prediction.verdict == Verdict::does_not_fit);
      CHECK(prediction.verdict_reason.find("host memory") != std::string::npos);
    }
  }
}

// findings/user.md, W2: this plan fitted under the default of then, an engine that has not run on a GPU, and
// under none of those that people run: 82.4 and 82.2 GiB of 79.2.
TEST_CASE("a plan on GPUs that names no engine is judged by one that people run there") {
  const describe::Model model = describe::resolve_model("llama3-8b");
  const auto plan_of = [&](const std::optional<std::string>& engine) {
    describe::PlanOptions options;
    options.zero = 2;
    options.micro_batch = 2;
    options.engine = engine;
    return describe::resolve_plan(options, model, "dgx-a100");
  };
  CHECK(plan_of(std::nullopt).plan.engine->name == "deepspeed");
  for (const std::optional<std::string>& engine :
       std::vector<std::optional<std::string>>{std::nullopt, "deepspeed", "fsdp2"}) {
    const describe::ResolvedPlan resolved = plan_of(engine);
    CAPTURE(resolved.plan.engine->name);
    const Prediction prediction = predict::predict(model, resolved.plan, resolved.cluster);
    CHECK(prediction.verdict == Verdict::does_not_fit);
    CHECK(static_cast<double>(prediction.peak_bytes) / static_cast<double>(kGiB) ==
          doctest::Approx(82.3).epsilon(0.01));
  }
}

TEST_CASE("what an engine says of GPUs is marked where it has not run on one") {
  const auto conditions = [](const std::string& engine, const std::string& hardware) {
    describe::PlanOptions options;
    options.engine = engine;
    const describe::Model model = describe::resolve_model("gpt2");
    const describe::ResolvedPlan resolved = describe::resolve_plan(options, model, hardware);
    const Prediction prediction = predict::predict(model, resolved.plan, resolved.cluster);
    return predict::time_conditions(prediction, resolved.plan, resolved.cluster);
  };
  REQUIRE(conditions("native", "dgx-a100").size() == 1);
  CHECK(conditions("native", "dgx-a100")[0].starts_with("native has not run on GPUs"));
  CHECK(conditions("deepspeed", "dgx-a100").empty());
  CHECK(conditions("native", "cpu").empty());
}

// findings/user.md, W3; see also tests/describe/machine/cluster_test.cpp.
// 64 H100 over nodes of eight cannot be as fast as 64 on one switch; a device without a shipped node has no
// network, so it has no time over nodes.
TEST_CASE("a device alone is as fast as its usual nodes, and has no time over nodes that nobody described") {
  const describe::Model model = describe::resolve_model("llama2-7b");
  const auto on = [&](const std::string& hardware) {
    describe::PlanOptions options;
    options.zero = 3;
    options.gpus = 64;
    options.recompute = describe::Recompute::full;
    return describe::resolve_plan(options, model, hardware);
  };
  const auto seconds_on = [&](const std::string& hardware) {
    const describe::ResolvedPlan resolved = on(hardware);
    return predict::predict(model, resolved.plan, resolved.cluster).time.seconds;
  };
  CHECK(seconds_on("h100") == seconds_on("dgx-h100"));
  const describe::ResolvedPlan apart = on("rtx-4090");
  const Prediction prediction = predict::predict(model, apart.plan, apart.cluster);
  REQUIRE(prediction.fits());
  CHECK_FALSE(prediction.time.is_known());
  CHECK(predict::why_no_time(prediction, apart.plan, apart.cluster) ==
        "the network between the 8 nodes of rtx-4090 is not described");
}

TEST_CASE("a plan that does not fit has no time, rate or cost") {
  const describe::Model model = describe::resolve_model("llama2-70b");
  const describe::ResolvedPlan resolved = describe::resolve_plan({}, model, "rtx-4090");
  const Prediction prediction = predict::predict(model, resolved.plan, resolved.cluster);
  REQUIRE(prediction.does_not_fit());
  CHECK_FALSE(predict::training_step(prediction, resolved.plan, resolved.cluster.device).has_value());
  CHECK(predict::why_no_time(prediction, resolved.plan, resolved.cluster) == "the plan does not fit");
}

TEST_CASE("a node with too little host memory is a no, with enough a yes") {
  Question question = gpt3_offloaded();
  question.host_memory = 2000 * kGB;
  CHECK(question.answer().verdict == Verdict::does_not_fit);
  const Bytes needed = question.answer().host_bytes_per_node;
  question.host_memory = needed - 1;
  CHECK(question.answer().verdict == Verdict::does_not_fit);
  question.host_memory = needed;
  CHECK(question.answer().fits());
}

TEST_CASE("a plan that keeps nothing on the host needs no description of it") {
  Question question{"gpt2-xl", "dgx-a100", {}, {}};
  CHECK(question.answer().verdict == Verdict::fits);
}

// 7.5e9 parameters x 16 bytes are 112 GiB on one device; 64 of them at stage 3 hold 1.75 GiB each.
TEST_CASE("states alone prove a no and never a yes") {
  Question question{"params=7.5B", "dgx2", {}, {}};
  question.options.engine = "native";
  question.options.gpus = 64;
  CHECK(question.answer().verdict == Verdict::does_not_fit);
  question.options.zero = 3;
  const Prediction prediction = question.answer();
  CHECK(prediction.verdict == Verdict::cannot_say);
  REQUIRE(prediction.missing.size() == 1);
  CHECK(prediction.missing[0].key == predict::kShape);
  question.options.offload = describe::Offload::all;
  CHECK(question.answer().missing.size() == 2);
}

// Offloaded states of ranks on processors are in the same memory as the ranks.
TEST_CASE("on processors, what is offloaded and what is not share the host's memory") {
  const describe::Model model = describe::resolve_model("gpt2");
  describe::PlanOptions options;
  options.gpus = 2;
  options.engine = "native";
  options.offload = describe::Offload::optimizer;
  describe::ResolvedPlan resolved = describe::resolve_plan(options, model, "cpu");
  const Prediction prediction = predict::predict(model, resolved.plan, resolved.cluster);
  const Bytes all = 2 * (prediction.peak_bytes + prediction.host_bytes_per_device);
  const auto with_memory = [&](Bytes bytes) {
    edit(resolved.cluster.node).host_memory_bytes->value = static_cast<double>(bytes);
    return predict::predict(model, resolved.plan, resolved.cluster).verdict;
  };
  CHECK(with_memory(all) == Verdict::fits);
  CHECK(with_memory(all - 2) == Verdict::does_not_fit);
}

TEST_CASE("what is suggested names the host memory that it needs, and promises none that is not described") {
  const describe::Model model = describe::resolve_model("llama2-70b");
  describe::PlanOptions options;
  options.engine = "native";
  const std::vector<solve::Suggestion> found = solve::suggest(model, options, "rtx-4090", 10);
  bool offloads = false;
  for (const solve::Suggestion& suggestion : found) {
    CAPTURE(suggestion.what);
    const bool on_host =
        suggestion.options.offload.value_or(describe::Offload::none) != describe::Offload::none;
    offloads = offloads || on_host;
    CHECK((suggestion.host_bytes_per_node > 0) == on_host);
    CHECK(suggestion.missing.empty() != on_host);
  }
  CHECK(offloads);
}
