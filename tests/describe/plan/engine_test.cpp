#include "planner/describe/plan/engine.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "planner/describe/plan/plan.hpp"
#include "planner/describe/text/embedded.hpp"
#include "tests/describe/plan/plan_support.hpp"

using namespace zeroplan;
using namespace zeroplan::describe;
using zeroplan::testing::contains;
using zeroplan::testing::problems_of;

namespace {

std::string reading(const std::string& figures) {
  const std::string head = "schema: zeroplan.engine/1\nname: mine\ntitle: Mine\nsource: its documentation\n";
  return problems_of([&] { read_engine_yaml(parse_yaml(head + figures, "mine.yaml")); });
}

// Bytes per parameter of the model states of one rank with Adam, written down again from the meaning of an
// engine's fields; `ranks` data-parallel ranks.
double state_bytes(const Engine& engine, Precision precision, int stage, double ranks) {
  const bool sixteen = precision != Precision::fp32;
  const double gradient = static_cast<double>(gradient_bytes(engine, precision));
  const double parameter = sixteen && !engine.fp32_parameters ? 2 : 4;
  const double master = sixteen && !engine.fp32_parameters ? 4 : 0;
  bool fp32_partition = engine.fp32_gradient_partition && gradient == 2;
  if (stage == 0 && !engine.fp32_gradient_at_stage_0) fp32_partition = false;
  const bool replaced = stage == 3 && fp32_partition && engine.fp32_gradient_replaces_stage_3;
  const bool whole_gradient = stage < 2 || (stage == 2 && engine.whole_gradients_at_stage_2);
  double total = parameter / (stage == 3 ? ranks : 1);
  if (!replaced) total += gradient / (whole_gradient ? 1 : ranks);
  total += (master + 8 + (fp32_partition ? 4 : 0)) / (stage >= 1 ? ranks : 1);
  return total;
}

}  // namespace

TEST_CASE("engines keep the bytes per parameter that their documentation states") {
  const double n = 8;
  SUBCASE("the ZeRO paper, Table 1, for our own executor") {
    const Engine engine = find_engine("native");
    CHECK(state_bytes(engine, Precision::fp16, 0, n) == doctest::Approx(16));
    CHECK(state_bytes(engine, Precision::fp16, 1, n) == doctest::Approx(4 + 12 / n));
    CHECK(state_bytes(engine, Precision::fp16, 2, n) == doctest::Approx(2 + 14 / n));
    CHECK(state_bytes(engine, Precision::bf16, 3, n) == doctest::Approx(16 / n));
  }
  SUBCASE("DeepSpeed: 2P + 18P/N at ZeRO-2, 18P/N at ZeRO-3") {
    const Engine engine = find_engine("deepspeed");
    CHECK(state_bytes(engine, Precision::fp16, 2, n) == doctest::Approx(2 + 18 / n));
    CHECK(state_bytes(engine, Precision::fp16, 3, n) == doctest::Approx(18 / n));
    // 500,000,000 elements of fp16 are 0.931 GiB.
    CHECK(static_cast<double>(engine.bucket_bytes) / static_cast<double>(kGiB) ==
          doctest::Approx(0.931).epsilon(0.001));
    CHECK(engine.step_copies_whole_partition);
  }
  SUBCASE("DeepSpeed's estimator: 4P + 16P/N and 18P/N, host 4 bytes while loading, factor 1.5") {
    const Engine engine = find_engine("deepspeed-estimator");
    CHECK(state_bytes(engine, Precision::fp16, 2, n) == doctest::Approx(4 + 16 / n));
    CHECK(state_bytes(engine, Precision::fp16, 3, n) == doctest::Approx(18 / n));
    CHECK(engine.bucket_bytes == 0);
    CHECK(engine.alignment_bytes == 1);
    CHECK(engine.partition_multiple == 1);
    CHECK(engine.prefetch_layers == 0);
    CHECK(engine.host_factor == 1.5);
    CHECK(engine.host_load_bytes_per_parameter == 4);
  }
  SUBCASE("Megatron-LM: fp16 20 and 4 + 16/d, bf16 18 and 6 + 12/d, fp32 16 and 8 + 8/d") {
    const Engine engine = find_engine("megatron");
    CHECK(state_bytes(engine, Precision::fp16, 0, n) == doctest::Approx(20));
    CHECK(state_bytes(engine, Precision::fp16, 1, n) == doctest::Approx(4 + 16 / n));
    CHECK(state_bytes(engine, Precision::bf16, 0, n) == doctest::Approx(18));
    CHECK(state_bytes(engine, Precision::bf16, 1, n) == doctest::Approx(6 + 12 / n));
    CHECK(state_bytes(engine, Precision::fp32, 0, n) == doctest::Approx(16));
    CHECK(state_bytes(engine, Precision::fp32, 1, n) == doctest::Approx(8 + 8 / n));
    CHECK(engine.vocabulary_multiple == 128);
  }
  SUBCASE("FSDP2: fp32 parameters, gradients and two states, all sharded") {
    CHECK(state_bytes(find_engine("fsdp2"), Precision::bf16, 3, n) == doctest::Approx(16 / n));
  }
}

TEST_CASE("an engine is found by name or alias, and every shipped one can be read") {
  CHECK(engine_names().size() == 10);
  for (const std::string& name : engine_names()) {
    CAPTURE(name);
    CHECK(find_engine(name)->name == name);
  }
  CHECK(find_engine("FSDP")->name == "fsdp2");
  CHECK(find_engine("Megatron_LM")->name == "megatron");
  CHECK(contains(problems_of([] { find_engine("deepsped"); }), "nearest: deepspeed"));
  CHECK(contains(problems_of([] { find_engine(""); }), "expected one of deepspeed, "));
}

TEST_CASE("an engine file is read strictly, each figure with its source") {
  CHECK(reading("prefetch_layers: {value: 2, source: its code}\n").empty());
  CHECK(contains(reading("prefetch_layers: {value: 2}\n"), "prefetch_layers.source: missing"));
  CHECK(contains(reading("prefetch_layers: {value: 2, source: \"\"}\n"), "expected a source"));
  CHECK(contains(reading("prefetch_layers: 2\n"), "expected a map"));
  CHECK(contains(reading("prefetch_layers: {value: -1, source: x}\n"), "prefetch_layers.value"));
  CHECK(contains(reading("host_factor: {value: .nan, source: x}\n"), "host_factor.value"));
  CHECK(contains(reading("prefetch_layer: {value: 2, source: x}\n"), "nearest: prefetch_layers"));
  CHECK(contains(problems_of([] { read_engine_yaml(parse_yaml("name: x\n", "mine.yaml")); }),
                 "schema: missing"));
}

TEST_CASE("an engine is like another but for what it says") {
  const std::string head = "schema: zeroplan.engine/1\nname: mine\ntitle: Mine\nsource: its documentation\n";
  const Engine mine = read_engine_yaml(parse_yaml(
      head + "like: deepspeed\nprefetch_layers: {value: 3, source: its documentation}\n", "mine.yaml"));
  const Engine deepspeed = find_engine("deepspeed");
  CHECK(mine.name == "mine");
  CHECK(mine.prefetch_layers == 3);
  CHECK(mine.bucket_bytes == deepspeed.bucket_bytes);
  CHECK(mine.overlapped_gradient_buckets == 2);
  CHECK(mine.alignment_bytes == find_engine("pytorch")->alignment_bytes);  // which deepspeed is like
  CHECK_FALSE(mine.held_against_gpu_runs);
  CHECK(reading("like: deepsped\n").find("nearest: deepspeed") != std::string::npos);
}

TEST_CASE("no shipped engine says again what the one says that it is like") {
  for (const EmbeddedFile& file : embedded_engines()) {
    const Value root = parse_yaml(file.text, std::string(file.path)).root;
    const Value* like = root.find("like");
    if (like == nullptr) continue;
    const auto engines = embedded_engines();
    const auto base = std::find_if(engines.begin(), engines.end(),
                                   [&](const EmbeddedFile& other) { return other.name == like->text; });
    REQUIRE(base != engines.end());
    const Value of_base = parse_yaml(base->text, std::string(base->path)).root;
    for (const Entry& entry : root.entries) {
      const Value* same = of_base.find(entry.key);
      const Value* value = entry.value.find("value");
      if (same == nullptr || value == nullptr || entry.key == "held_against_gpu_runs") continue;
      CAPTURE(file.name);
      CAPTURE(entry.key);
      CHECK_FALSE((value->kind == Value::Kind::scalar && same->find("value")->text == value->text));
    }
  }
}
