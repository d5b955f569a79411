#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

#include "tests/support/cases.hpp"
#include "tests/support/predicted.hpp"

// Cases of tests/reference/cases.yaml about what people forget: temporaries, scores, logits, buckets, pinned
// host memory. cases_test.cpp lists where each case is tested.

using namespace zeroplan;
using namespace zeroplan::test;
using program::Category;

namespace {

double states_gib(const predict::Prediction& prediction) {
  return gib(static_cast<double>(prediction.model_state_bytes));
}

}  // namespace

TEST_CASE("R04: an optimizer that copies its fp32 shard peaks in the step, and 7B with ZeRO-2 does not fit") {
  const Case question("R04");
  const auto with = [&](int stage) {
    return predicted_in(
        question.given("gpu_gib"), "llama2-7b",
        fmt::format("gpus=8 zero={} micro_batch=1 seq=1024 recompute=full engine=deepspeed", stage),
        "v100-32gb");
  };
  const predict::Prediction zero2 = with(2);
  CHECK(static_cast<double>(zero2.program().parameters) == question.given("params"));
  CHECK(gib(buffer_bytes(zero2, "fused_gradient")) ==
        doctest::Approx(question.answer("temporary_gib")).epsilon(0.001));
  CHECK(states_gib(zero2) >= question.answers("zero2_states_gib")[0] * 0.999);
  CHECK(states_gib(zero2) <= question.answers("zero2_states_gib")[1] * 1.001);
  CHECK(zero2.memory().place.phase == program::Phase::step);
  CHECK(zero2.fits() == question.yes("fits.zero2"));
  const predict::Prediction zero3 = with(3);
  CHECK(std::abs(states_gib(zero3) - question.answer("zero3_states_gib")) <= 0.051);
  CHECK(zero3.fits() == question.yes("fits.zero3"));
}

TEST_CASE("R06: host memory of a fully offloaded 33B model is a range, and its middle decides") {
  const Case question("R06");
  const std::string model = "llama-33b";
  describe::ResolvedPlan resolved = planned(
      model, "nodes=1 zero=3 offload=all micro_batch=1 recompute=full seq=1024 engine=deepspeed", "dgx-a100");
  const auto with_host = [&](double gbytes) {
    edit(resolved.cluster.node).host_memory_bytes.emplace().value = gbytes * kGB;
    return predict::predict(describe::resolve_model(model), resolved.plan, resolved.cluster);
  };
  const predict::Prediction small = with_host(600);
  CHECK(static_cast<double>(small.program().parameters) == question.given("params"));
  const double least = gb(static_cast<double>(small.host_bytes_per_node_least));
  const double most = gb(static_cast<double>(small.host_bytes_per_node));
  CHECK(least == doctest::Approx(question.answers("range_gb")[0]).epsilon(0.02));
  CHECK(most == doctest::Approx(question.answers("range_gb")[1]).epsilon(0.02));
  CHECK(least <= question.answers("measured_gb")[0]);
  CHECK(most >= question.answers("measured_gb")[1]);
  CHECK(small.fits() == question.yes("fits.600"));
  CHECK(with_host(800).fits() == question.yes("fits.800"));
}

TEST_CASE(
    "R11: weights moved away leave the device's buffers, and the allocator's share is a line of its own") {
  const Case question("R11");
  const std::string model = fmt::format("params={:.0f}", question.answer("params"));
  const predict::Prediction before = predicted(model, "dp=1");
  const predict::Prediction after = predicted(model, "dp=1 offload=all engine=deepspeed");
  CHECK(gib(held_bytes(before, Category::parameter)) ==
        doctest::Approx(question.given("allocated_before_gib")).epsilon(0.005));
  CHECK(after.model_state_bytes == 0);
  bool told = false;
  for (const predict::OverheadTerm& term : after.overheads) told = told || term.name == "allocator";
  CHECK(told);
}

TEST_CASE("R12: a bucket larger than the gradients that are saved makes ZeRO-2 need more than ZeRO-1") {
  const Case question("R12");
  const std::string model = "layers=24,hidden=1024,heads=16,vocab=30522";
  const auto with = [&](int stage, double bucket_bytes) {
    describe::ResolvedPlan resolved =
        planned(model,
                fmt::format("gpus={:.0f} zero={} micro_batch=16 seq=512 engine=deepspeed",
                            question.given("gpus"), stage),
                "v100-32gb");
    if (bucket_bytes > 0) resolved.plan.bucket_bytes = static_cast<Bytes>(bucket_bytes);
    return predict::predict(describe::resolve_model(model), resolved.plan, resolved.cluster);
  };
  // The case's bucket is larger than the model; a plan caps it at the gradients (R35), so it is set here.
  const double bucket = question.given("bucket_elements") * question.given("bucket_bytes");
  const predict::Prediction zero1 = with(1, bucket);
  const predict::Prediction zero2 = with(2, bucket);
  const auto parameters = static_cast<double>(zero1.program().parameters);
  CHECK(parameters == doctest::Approx(question.given("params")).epsilon(0.02));
  const double saved = mib(held_bytes(zero1, Category::gradient) - held_bytes(zero2, Category::gradient));
  CHECK(saved == doctest::Approx(question.answer("state_saving_mib")).epsilon(0.02));
  CHECK(mib(buffer_bytes(zero2, "gradient_bucket") + buffer_bytes(zero2, "gradient_bucket.rest")) ==
        doctest::Approx(question.answer("bucket_mib")).epsilon(0.1));
  const double more = gib(static_cast<double>(zero2.memory().peak - zero1.memory().peak));
  CHECK(more >= 0.3);
  CHECK(more <= 1.0);
  CHECK(with(2, 0).memory().peak > with(1, 0).memory().peak);
}

TEST_CASE("R14: one fp32 score tensor of an unfused attention") {
  const Case question("R14");
  const std::string shape =
      fmt::format("layers=2,hidden=4096,heads={:.0f},vocab=1000", question.given("heads"));
  for (const std::string recompute : {"none", "full"}) {
    CAPTURE(recompute);
    const predict::Prediction prediction =
        predicted(shape,
                  fmt::format("dp=1 micro_batch={:.0f} seq={:.0f} attention=materialized_fp32 recompute={}",
                              question.given("batch"), question.given("seq"), recompute),
                  "a100-80gb");
    CHECK(gib(buffer_bytes(prediction, "attention.fp32_scores")) == question.answer("gib"));
  }
}

TEST_CASE("R15: logits of a large vocabulary, and how many copies are alive") {
  const Case question("R15");
  SUBCASE("fp32") {
    const predict::Prediction prediction = predicted(
        fmt::format("layers=2,hidden=1024,heads=8,vocab={:.0f}", question.given("a.vocab")),
        fmt::format("dp=1 micro_batch=1 seq={:.0f} dtype=bf16", question.given("a.tokens")), "a100-80gb");
    const double fp32 = gib(buffer_bytes(prediction, "logits"));
    CHECK(fp32 == doctest::Approx(question.answer("a_gib")).epsilon(0.01));
    CHECK(gib(peak_bytes(prediction, Category::logits)) == doctest::Approx(1.5 * fp32).epsilon(1e-6));
  }
  SUBCASE("bf16") {
    const predict::Prediction prediction =
        predicted("llama3.1-8b",
                  fmt::format("dp=8 zero=3 micro_batch=1 seq={:.0f} dtype=bf16", question.given("b.tokens")),
                  "a100-80gb");
    CHECK(gib(buffer_bytes(prediction, "logits_gradient")) ==
          doctest::Approx(question.answer("b_gib")).epsilon(0.01));
  }
}
