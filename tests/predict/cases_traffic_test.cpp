#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

#include "tests/support/cases.hpp"
#include "tests/support/predicted.hpp"

// Cases of tests/reference/cases.yaml about bytes moved and work. A time or a share of a peak rate that a
// case goes on to ask for belongs to the capability that answers how fast; where the case itself gives the
// rate, it is only divided here. cases_test.cpp lists where each case is tested.

using namespace zeroplan;
using namespace zeroplan::test;
using program::Category;
using program::GroupKind;
using program::Op;
using program::Phase;

TEST_CASE("R09: gradients while accumulating, synchronised every micro-batch or not") {
  const Case question("R09");
  const std::string model = fmt::format("params={:.0f}", question.given("params"));
  const auto with = [&](int stage, int passes) {
    return predicted(model,
                     fmt::format("gpus={:.0f} zero={} grad_accum={}", question.given("gpus"), stage, passes));
  };
  CHECK(gb(held_bytes(with(2, 4), Category::gradient)) ==
        doctest::Approx(question.answer("sharded_gb")).epsilon(0.01));
  CHECK(gb(held_bytes(with(1, 4), Category::gradient)) ==
        doctest::Approx(question.answer("unsharded_gb")).epsilon(0.01));
  // The price of synchronising: one reduce-scatter for each micro-batch in place of one in all.
  CHECK(with(1, 4).traffic_psi == doctest::Approx(2).epsilon(1e-6));
  CHECK(with(2, 4).traffic_psi == doctest::Approx(4 + 1).epsilon(1e-6));
}

TEST_CASE("R17: ZeRO-3 moves 6 M (N-1)/N bytes, which as many tokens hide at every size of model") {
  const Case question("R17");
  const double parameters = question.answer("example.params");
  for (const std::int64_t ranks : {2, 8, 512}) {
    CAPTURE(ranks);
    const double sent =
        predicted(fmt::format("params={:.0f}", parameters), fmt::format("gpus={} zero=3", ranks))
            .traffic()
            .sent_bytes(GroupKind::data_parallel);
    const double n = static_cast<double>(ranks);
    CHECK(sent == doctest::Approx(6 * parameters * (n - 1) / n).epsilon(1e-6));
    if (ranks == 512) CHECK(gb(sent) == doctest::Approx(question.answer("example.gb")).epsilon(0.05));
  }
  // Tokens whose work, at the case's own rates, takes as long as the bytes. Short sequences keep attention
  // small.
  for (const std::string model : {"gpt3-175b", "gpt3-13b"}) {
    CAPTURE(model);
    const predict::Prediction prediction =
        predicted(model, "gpus=512 zero=3 micro_batch=1 seq=1024 recompute=full", "a100-80gb");
    const double seconds =
        prediction.traffic().sent_bytes(GroupKind::data_parallel) / question.given("node_bytes_per_s");
    const double flops_per_token = prediction.work().hardware / 1024;
    const double tokens = seconds * question.given("flops_per_gpu") / flops_per_token;
    CHECK(tokens == doctest::Approx(question.answer("tokens_per_gpu")).epsilon(0.05));
  }
}

TEST_CASE("R18: bytes that ZeRO-3's forward gathers") {
  const Case question("R18");
  const predict::Prediction prediction = predicted(fmt::format("params={:.0f}", question.given("params")),
                                                   fmt::format("gpus={:.0f} zero=3", question.given("gpus")));
  const double gathered = gb(sent_bytes(prediction, Op::all_gather, Phase::forward));
  CHECK(gathered == doctest::Approx(question.answer("gather_gb")).epsilon(0.001));
  const double milliseconds = 1000 * gathered / question.given("bus_gb_s");
  CHECK(milliseconds == doctest::Approx(question.answer("gather_ms")).epsilon(0.1));
  CHECK((milliseconds > question.given("forward_ms.zero2")) == question.yes("bandwidth_bound"));
}

TEST_CASE("R19: model FLOPs of a token of LLaMA-7B are 6 P + 12 L h s, its peak rate the dense one") {
  const Case question("R19");
  const predict::Prediction prediction =
      predicted("llama2-7b", fmt::format("dp=1 micro_batch=1 seq={:.0f}", question.given("seq")), "h100");
  CHECK(static_cast<double>(prediction.program().parameters) == question.given("params"));
  const double formula = 6 * question.given("params") +
                         12 * question.given("layers") * question.given("hidden") * question.given("seq");
  // The formula counts the input embedding, which is looked up and not multiplied: 1.7 % here.
  const double per_token = prediction.work().model / question.given("seq");
  const double lookup = 6.0 * 32000 * question.given("hidden");
  CHECK(per_token == doctest::Approx(formula - lookup).epsilon(0.001));
  CHECK(per_token == doctest::Approx(formula).epsilon(0.02));
  const double peak = describe::find_device("h100")->peak_bf16_tflops->value;
  CHECK(peak == doctest::Approx(question.given("dense_peak_tflops")).epsilon(0.001));
}

TEST_CASE("R21: FLOPs of a step with full recomputation and a large vocabulary") {
  const Case question("R21");
  // The run's 384 devices hold tensor and pipeline stages; pipeline stages divide the work, nothing more.
  const predict::Prediction prediction = predicted(
      fmt::format("layers={:.0f},hidden={:.0f},heads=112,vocab={:.0f}", question.given("layers"),
                  question.given("hidden"), question.given("vocab")),
      fmt::format(
          "dp=8 tp=4 micro_batch=1 global_batch={:.0f} seq={:.0f} recompute=full attention=materialized",
          question.given("global_batch"), question.given("seq")),
      "a100-80gb");
  const double tflops =
      prediction.work().hardware_all_ranks / question.given("gpus") / question.given("seconds") / 1e12;
  CHECK(tflops == doctest::Approx(question.answer("tflops")).epsilon(0.001));
}
