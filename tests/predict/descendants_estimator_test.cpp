#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "tests/describe/plan/plan_support.hpp"
#include "tests/support/predicted.hpp"
#include "tests/support/reference.hpp"

// The figures that DeepSpeed's published memory estimator prints (DeepSpeed,
// docs/code-docs/source/memory.rst), from the engine that follows its arithmetic. It prints GiB.

using namespace zeroplan;
using namespace zeroplan::test;
using describe::Value;

namespace {

constexpr double kBufferFactor = 1.5;

// "zero3 opt, init1": stage, what is offloaded, and whether the model is built partitioned (init1).
struct EstimatorCase {
  int stage = 0;
  std::string offload = "none";
  bool partitioned_while_loading = false;
};

EstimatorCase read_case(const std::string& text) {
  EstimatorCase result;
  result.stage = text.rfind("zero3", 0) == 0 ? 3 : 2;
  if (testing::contains(text, "both")) result.offload = "all";
  if (testing::contains(text, "opt")) result.offload = "optimizer";
  result.partitioned_while_loading = testing::contains(text, "init1");
  return result;
}

predict::Prediction estimated(const std::string& model, std::int64_t gpus, const EstimatorCase& how) {
  describe::ResolvedPlan resolved = planned(
      model,
      fmt::format("gpus={} zero={} offload={} engine=deepspeed-estimator", gpus, how.stage, how.offload),
      "dgx1");
  resolved.plan.engine.edit().partitioned_loading = how.partitioned_while_loading;
  return predict::predict(describe::resolve_model(model), resolved.plan, resolved.cluster);
}

// memory.rst: bytes on one device.
double estimator_device_bytes(double parameters, double layer, double gpus, const EstimatorCase& how) {
  const bool offload = how.offload != "none";
  if (how.stage == 2) return offload ? 2 * parameters : 4 * parameters + 16 * parameters / gpus;
  const double states = how.offload == "all" ? 0 : (offload ? 2 : 18) * parameters / gpus;
  return 4 * layer + states;
}

// memory.rst: bytes of host memory of a node that holds all `gpus` devices.
double estimator_host_bytes(double parameters, double layer, double gpus, const EstimatorCase& how) {
  double held = 0;
  if (how.offload == "optimizer") held = 16;
  if (how.offload == "all") held = 18;
  const double loaded = 4 * gpus * (how.partitioned_while_loading ? layer : parameters);
  return std::max(held * parameters, loaded) * kBufferFactor;
}

}  // namespace

TEST_CASE("D1: device memory of every example of the estimator") {
  const describe::Document facts = reference("descendants.yaml");
  int examples = 0;
  for (const Value& row : rows(facts.root, "deepspeed_memory_estimator.examples.rows")) {
    CAPTURE(text(row, "case"));
    const EstimatorCase how = read_case(text(row, "case"));
    const double device =
        gib(static_cast<double>(estimated("params=2851M,largest_layer=32M", 8, how).memory().peak));
    CHECK(device == doctest::Approx(gib(estimator_device_bytes(2851e6, 32e6, 8, how))).epsilon(1e-5));
    CHECK(std::abs(device - number(row, "gpu_exact")) < 0.0001);
    CHECK(std::abs(device - number(row, "gpu")) < 0.01);
    ++examples;
  }
  CHECK(examples == 8);
}

TEST_CASE("D1: host memory of every example of the estimator") {
  const describe::Document facts = reference("descendants.yaml");
  for (const Value& row : rows(facts.root, "deepspeed_memory_estimator.examples.rows")) {
    CAPTURE(text(row, "case"));
    const EstimatorCase how = read_case(text(row, "case"));
    const double host =
        gib(static_cast<double>(estimated("params=2851M,largest_layer=32M", 8, how).host_bytes_per_node));
    CHECK(host == doctest::Approx(gib(estimator_host_bytes(2851e6, 32e6, 8, how))).epsilon(0.001));
    CHECK(std::abs(host - number(row, "cpu")) < 0.01);
  }
}

TEST_CASE("D1: the estimator's example of T5-large on 4 devices") {
  const describe::Document facts = reference("descendants.yaml");
  const Value& example = at(facts.root, "deepspeed_memory_estimator.example_t5_large");
  const std::string model =
      fmt::format("params={},largest_layer={}", integer(example, "P"), integer(example, "largest_layer"));
  const auto device = [&](const std::string& offload) {
    EstimatorCase how;
    how.stage = 3;
    how.offload = offload;
    return mib(static_cast<double>(estimated(model, integer(example, "total_gpus"), how).memory().peak));
  };
  CHECK(std::abs(device("none") - number(example, "case1_MiB")) < 1);
  CHECK(std::abs(device("all") - number(example, "case2_MiB")) < 1);
  CHECK(std::abs(device("optimizer") - number(example, "case3_MiB")) < 1);
}
