#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

#include "tests/support/predicted.hpp"
#include "tests/support/reference.hpp"

// Activation bytes of a transformer layer (Korthikanti et al., arXiv 2205.05198, Table 2) and the bandwidth
// model of ZeRO-Infinity (arXiv 2104.07857, Section 4). A layer's share is the difference between a model and
// the same model with more layers, so the embedding and the head drop out.

using namespace zeroplan;
using namespace zeroplan::test;
using describe::Value;
using program::Category;

namespace {

// Bytes that backward needs and that grow with the layers.
double kept_bytes(const predict::Prediction& prediction) {
  return peak_bytes(prediction, Category::activation) + peak_bytes(prediction, Category::checkpoint);
}

double layer_gb(const Value& run, const std::string& words) {
  const auto kept = [&](std::int64_t layers) {
    return kept_bytes(
        predicted(fmt::format("layers={},hidden={},heads={},vocab=51200", layers, text(run, "hidden"),
                              text(run, "heads")),
                  fmt::format("micro_batch={} seq=2048 dtype=fp16 attention=materialized dropout=on {}",
                              text(run, "microbatch"), words),
                  "a100-80gb"));
  };
  const std::int64_t layers = integer(run, "layers");
  return gb(kept(layers + 1) - kept(layers));
}

// Table 2, in fp16: "none", "tp", "tp_selective", "full_recompute".
struct LayerFormula {
  double sbh, attention;  // s b h, and 5 a s / h
  explicit LayerFormula(const Value& run)
      : sbh(2048 * number(run, "microbatch") * number(run, "hidden")),
        attention(5 * number(run, "heads") * 2048 / number(run, "hidden")) {}
  double none() const { return gb(sbh * (34 + attention)); }
  double tensor_parallel(double t) const { return gb(sbh * (10 + 24 / t + attention / t)); }
  double selective(double t) const { return gb(sbh * (10 + 24 / t)); }
  double full() const { return gb(2 * sbh); }
};

}  // namespace

// The columns with sequence parallelism (tp_sp, tp_sp_selective) belong to the capability that adds it.
TEST_CASE("D5: activation bytes of a layer, 22B to 1T, by recomputation and tensor-parallel degree") {
  const describe::Document facts = reference("descendants.yaml");
  for (const Value& run : rows(facts.root, "korthikanti_2022.runs.rows")) {
    CAPTURE(text(run, "model"));
    const LayerFormula formula(run);
    const double t = number(run, "t");
    const std::string degree = fmt::format("dp=1 tp={} ", text(run, "t"));
    const std::vector<double> published = numbers(run, "layer_GB");
    CHECK(formula.attention == doctest::Approx(number(run, "as5_over_h")).epsilon(1e-4));

    const auto agrees = [](double bytes, double formula_gb, double published_gb) {
      // The formula leaves out the statistics of the norms, 16 bytes a token.
      CHECK(bytes == doctest::Approx(formula_gb).epsilon(0.001));
      CHECK(bytes == doctest::Approx(published_gb).epsilon(0.006));
    };
    agrees(layer_gb(run, "dp=1 tp=1 recompute=none"), formula.none(), published[0]);
    agrees(layer_gb(run, degree + "recompute=none"), formula.tensor_parallel(t), published[1]);
    agrees(layer_gb(run, degree + "recompute=selective"), formula.selective(t), published[3]);
    agrees(layer_gb(run, degree + "recompute=full"), formula.full(), published[5]);
    const double divided = layer_gb(run, degree + "recompute=full partition_activations=on");
    CHECK(divided == doctest::Approx(formula.full() / t).epsilon(1e-4));
  }
}

TEST_CASE("D5: without dropout a layer keeps 32 bytes, and attention 2 a s / h, of each s b h") {
  // Table 2 counts masks of one byte: 2 of the 34, and 1 + 2 (the dropped probabilities) of the 5.
  const describe::Document facts = reference("descendants.yaml");
  const Value& run = rows(facts.root, "korthikanti_2022.runs.rows").front();
  const LayerFormula formula(run);
  const double expected = gb(formula.sbh * (32 + 2.0 / 5 * formula.attention));
  CHECK(layer_gb(run, "dp=1 tp=1 dropout=off") == doctest::Approx(expected).epsilon(0.001));
}

namespace {

constexpr double kAchievable = 70e12;  // FLOP/s of a V100 in the paper's model

double efficiency_percent(double flops, double bytes, double gbytes_per_s) {
  const double rate = flops / bytes * gbytes_per_s * 1e9;
  return 100 * rate / (rate + kAchievable);
}

struct Moved {
  double flops = 0;
  double bytes = 0;
};

// What two more layers add to the work and to the copies between device and host.
Moved two_layers(std::int64_t hidden, std::int64_t heads, const std::string& words) {
  Moved result;
  for (const int sign : {-1, 1}) {
    const predict::Prediction prediction = predicted(
        fmt::format("layers={},hidden={},heads={},vocab=1024", sign > 0 ? 6 : 4, hidden, heads), words);
    result.flops += sign * prediction.work().hardware;
    result.bytes += sign * (prediction.traffic().to_device_bytes + prediction.traffic().to_host_bytes);
  }
  return result;
}

// Section 4.1 loads parameters three times: forward, recomputation, backward. The program loads the layers of
// a checkpoint of two twice in backward; with one layer per checkpoint recomputation and backward share one
// load.
Moved parameters_and_gradients(std::int64_t batch, std::int64_t interval) {
  return two_layers(25600, 160,
                    fmt::format("dp=1 zero=3 offload=all micro_batch={} seq=1024 recompute=full "
                                "attention=materialized checkpoint_interval={}",
                                batch, interval));
}

// The intensity does not depend on the sequence; a short one keeps attention's s^2, which the paper leaves
// out, small.
Moved activation_checkpoints(std::int64_t hidden) {
  return two_layers(
      hidden, 16,
      "dp=1 tp=2 micro_batch=8 seq=64 attention=materialized recompute=full offload_activations=on");
}

}  // namespace

TEST_CASE("D8: ZeRO-Infinity's bandwidth model from the work and the copies of the program") {
  const describe::Document facts = reference("descendants.yaml");
  int checks = 0;
  for (const Value& row : rows(facts.root, "zero_infinity.bandwidth_model.checks.rows")) {
    const std::string& name = text(row, "case");
    CAPTURE(name);
    const bool parameters = name.rfind("params bsz", 0) == 0;
    const std::int64_t size = std::stoll(name.substr(name.find_first_of("0123456789")));
    const Moved moved = parameters ? parameters_and_gradients(size, 2) : activation_checkpoints(1024 * size);
    const double percent = efficiency_percent(moved.flops, moved.bytes, number(row, "bw_GBps"));
    CHECK(std::abs(percent - number(row, "percent_computed")) <= 0.5);
    CHECK(std::abs(percent - number(row, "percent_figure")) <= 0.5);
    ++checks;
  }
  CHECK(checks == 11);
}

TEST_CASE("D8: 50.6 % at 70 GB/s with one sequence of 1024") {
  const Moved moved = parameters_and_gradients(1, 2);
  CHECK(std::abs(efficiency_percent(moved.flops, moved.bytes, 70) - 50.6) <= 0.5);
}

TEST_CASE("D8: one load for recomputation and backward together moves three quarters of the bytes") {
  const Moved twice = parameters_and_gradients(1, 2);
  const Moved once = parameters_and_gradients(1, 1);
  CHECK(once.bytes / twice.bytes == doctest::Approx(0.75).epsilon(1e-6));
  CHECK(once.flops == doctest::Approx(twice.flops).epsilon(1e-12));
}
