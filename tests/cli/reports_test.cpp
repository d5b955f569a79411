#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/command.hpp"

using namespace zeroplan::test;
using nlohmann::json;

// Public questions and files (tests/reference/reports/README.md), with what is right about each. N19 runs, in
// tests/live/validate_test.cpp.
namespace {

const std::string kFiles = ZEROPLAN_TEST_DATA "/reports/";

CommandResult with_file(const std::string& before, const std::string& file, const std::string& after = "") {
  return run_command(before + ' ' + kFiles + file + after);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The text as one line, because a table breaks its paragraphs.
std::string unwrapped(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text;
}

std::string notes_of(const CommandResult& result) {
  std::string text;
  const json answer = json::parse(result.out);
  for (const json& note : answer.at("notes")) text += note.get<std::string>() + '\n';
  return text;
}

constexpr double kGibibyte = 1073741824.0;

json fit_json(const std::string& arguments, int expected_exit_code) {
  const CommandResult result = run_command("fit " + arguments + " -o json");
  CAPTURE(arguments);
  CAPTURE(result.err);
  REQUIRE(result.exit_code == expected_exit_code);
  return json::parse(result.out).at("result");
}

double category(const json& result, const char* name) {
  return result.at("by_category_bytes").at(name).get<double>();
}

// Parameters, gradients and optimizer states.
double states_bytes(const json& result) {
  return category(result, "parameter") + category(result, "gradient") + category(result, "optimizer_state");
}

}  // namespace

// Reported: out of memory in the first step, with 28.82 GiB allocated when 786 MiB of fp32 logits were asked
// for.
TEST_CASE("N01: a gated 774M model does not fit a V100, and fails where it was reported to fail") {
  const json result =
      fit_json(kFiles +
                   "N01_swiglu_774m.yaml --hw v100-32gb --gpus 1 --engine megatron --zero 1 --dtype fp16 "
                   "--micro-batch 4 --grad-accum 4 --attention materialized --dropout --seq 1024",
               1);
  constexpr double kParameters = 50304 * 1280 + 1024 * 1280 +               // token and position tables
                                 36 * (4 * (1280 * 1280 + 1280) +           // attention
                                       3 * 1280 * 3392 + 2 * 3392 + 1280 +  // gated MLP
                                       4 * 1280) +                          // two norms
                                 2 * 1280;
  CHECK(category(result, "parameter") == doctest::Approx(2 * kParameters).epsilon(1e-3));
  CHECK(category(result, "gradient") == doctest::Approx(6 * kParameters).epsilon(1e-3));  // and in fp32
  CHECK(category(result, "optimizer_state") == doctest::Approx(12 * kParameters).epsilon(1e-3));
  // Adam's two states did not exist yet in the first step.
  const double allocated = states_bytes(result) - 8 * kParameters + category(result, "activation");
  CHECK(allocated / kGibibyte == doctest::Approx(28.82).epsilon(0.01));
  CHECK(category(result, "logits") >= 4.0 * 1024 * 50304 * 4);
  CHECK(result.at("peak_bytes").get<double>() / kGibibyte == doctest::Approx(37.5).epsilon(0.015));
}

TEST_CASE("N03: a 16-bit training says that it keeps fp32 master weights") {
  const CommandResult result = run_command(
      "fit llama2-7b --hw a100-80gb --gpus 1 --engine pytorch --dtype bf16 --optimizer sgd --seq 512 "
      "--recompute full");
  CHECK(contains(unwrapped(result.out), "without fp32 master weights"));
}

// The three ran, with such a loss; without it they do not fit.
TEST_CASE("N06: logits that decide say that a fused loss is not modelled") {
  for (const char* model : {"qwen2.5-3b", "qwen2.5-7b --micro-batch 32 --grad-accum 4",
                            "qwen2.5-14b --micro-batch 21 --grad-accum 6"}) {
    CAPTURE(model);
    const std::string line =
        fmt::format("fit {} --seq 1024 --recompute full --hw {}box4x4090.yaml -f", model, kFiles);
    const CommandResult result = with_file(line, "N06_offload_all.json", " -o json");
    CHECK(contains(result.out, "a fused loss that never holds them is not modelled"));
  }
}

TEST_CASE("N08: the wrapping policy of FSDP is noted in every format") {
  const std::string line = "fit llama-7b --hw l40s --micro-batch 1 --seq 2048 -f";
  for (const char* format : {"table", "json", "jsonl", "csv", "md", "yaml"}) {
    CAPTURE(format);
    const CommandResult result = with_file(line, "N08_no_wrap.yaml", std::string(" -o ") + format);
    std::string text = unwrapped(result.out);
    std::erase(text, '\\');  // Markdown escapes '_'
    CHECK(contains(text, "fsdp_config.fsdp_auto_wrap_policy: found "));
    CHECK(contains(text, "all parameters are gathered at once"));
    CHECK(result.err.empty());
  }
}

// LLaMA-7B, fp16, 2,048 tokens, 8 A100; GiB per GPU as printed by those who ran it.
TEST_CASE("N11: six plans of LLaMA-7B that ran fit, and take about what was measured") {
  struct Row {
    const char* plan;
    double measured_gib;
  };
  const std::vector<Row> rows{
      {"dgx-a100 --tp 1 --zero 2 --micro-batch 4 --grad-accum 64", 70.09},
      {"dgx-a100 --tp 2 --zero 1 --micro-batch 4 --grad-accum 128", 58.73},
      {"dgx-a100 --tp 2 --zero 2 --micro-batch 4 --grad-accum 128", 54.01},
      {"nd-a100-v4 --tp 1 --zero 2 --micro-batch 2 --grad-accum 128 --recompute full", 33.55},
      {"nd-a100-v4 --tp 2 --zero 1 --micro-batch 2 --grad-accum 256 --recompute full", 28.4},
      {"nd-a100-v4 --tp 2 --zero 2 --micro-batch 2 --grad-accum 256 --recompute full", 25.8}};
  for (const char* engine : {"pytorch", "deepspeed"}) {
    for (const Row& row : rows) {
      CAPTURE(row.plan);
      CAPTURE(engine);
      const json result = fit_json(
          fmt::format("llama-7b --gpus 8 --dtype fp16 --seq 2048 --engine {} --hw {}", engine, row.plan), 0);
      // The engine that ran is not modelled: a quarter.
      CHECK(result.at("peak_bytes").get<double>() / kGibibyte ==
            doctest::Approx(row.measured_gib).epsilon(0.25));
    }
  }
}

// Measured: 32 of 40 GiB. The ZeRO stage is not stated.
TEST_CASE("N12: Llama-2-7B with tensor parallelism of 4 fits 8 A100 of 40 GB") {
  for (const char* engine : {"megatron", "deepspeed"}) {
    CAPTURE(engine);
    const json result =
        fit_json(fmt::format("llama2-7b --hw nd-a100-v4 --gpus 8 --tp 4 --engine {} --zero 1 --dtype bf16 "
                             "--micro-batch 1 --grad-accum 32 --seq 4096",
                             engine),
                 0);
    CHECK(result.at("peak_bytes").get<double>() / kGibibyte == doctest::Approx(32).epsilon(0.15));
  }
}

TEST_CASE("N13: a draft model is refused as another network than its model_type says") {
  const CommandResult result = with_file("models count", "N13_draft_head.json");
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "N13_draft_head.json:3: architectures: found \"LlamaForCausalLMEagle3\""));
  CHECK(contains(result.err, "draft_vocab_size"));
}

TEST_CASE("N15: a reward model has a score instead of the vocabulary") {
  const CommandResult count = with_file("models count", "N15_reward_model.json", " -o json");
  CHECK(json::parse(count.out).at("parameters") == 7'504'928'768);
  const CommandResult fit =
      run_command("fit " + kFiles +
                  "N15_reward_model.json --hw dgx-h100 --zero 3 --engine deepspeed --micro-batch 8 "
                  "--seq 4096 --dtype bf16 -o json");
  // One logit for each of 8 x 4096 tokens; with the vocabulary there were 23.5 GiB.
  CHECK(json::parse(fit.out).at("result").at("by_category_bytes").at("logits").get<std::int64_t>() <=
        8 * 4096 * 12);
  CHECK(contains(notes_of(fit), "one score instead of a vocabulary"));
}

TEST_CASE("a classifier is planned and not run: its loss is another") {
  const TemporaryFolder folder;
  std::ofstream(folder.file("config.json"))
      << R"({"model_type": "llama", "architectures": ["LlamaForSequenceClassification"], "hidden_size": 64,
            "num_hidden_layers": 2, "num_attention_heads": 8, "vocab_size": 1000, "intermediate_size": 128})";
  const CommandResult result =
      run_command("validate " + folder.file("config.json") + " --gpus 1 --seq 16 --dtype fp32 --steps 1");
  CHECK(result.exit_code == 3);
  CHECK(contains(unwrapped(result.out + result.err), "the loss of a classifier is planned, but not run yet"));
}

TEST_CASE("N16: sequence parallelism changes the degrees, so it is refused") {
  const CommandResult result = with_file("fit llama3-8b --hw dgx-h100 -f", "N16_ulysses.json");
  CHECK(result.exit_code == 2);
  CHECK(
      contains(result.err, "N16_ulysses.json:4: sequence_parallel: found a section, which is not modelled"));
}

TEST_CASE("N17: nothing is partitioned over one tensor-parallel rank, and the file is planned") {
  const CommandResult result =
      with_file("fit llama3-8b --hw dgx-h100 -f", "N17_partition_one_rank.json", " -o json");
  REQUIRE(result.exit_code == 0);
  const json plan = json::parse(result.out).at("inputs").at("plan");
  CHECK(plan.at("recompute") == "full");
  CHECK(plan.at("partition_activations") == false);
  CHECK(contains(notes_of(result), "nothing is partitioned"));
  // 28.6 GiB with recomputation.
  const double gib = json::parse(result.out).at("result").at("peak_bytes").get<double>() / 1073741824.0;
  CHECK(gib == doctest::Approx(28.6).epsilon(0.02));
  // With two ranks there is something to divide.
  const CommandResult two =
      with_file("fit llama3-8b --hw dgx-h100 --tp 2 -f", "N17_partition_one_rank.json", " -o json");
  CHECK(json::parse(two.out).at("inputs").at("plan").at("partition_activations") == true);
}

TEST_CASE("N18: DeepSpeed's settings inside accelerate's file are read") {
  const CommandResult result =
      with_file("fit llama3-8b --hw dgx-h100 -f", "N18_accelerate_deepspeed.yaml", " -o json");
  const json plan = json::parse(result.out).at("inputs").at("plan");
  CHECK(plan.at("zero_stage") == 3);
  CHECK(plan.at("offload") == "all");
  CHECK(plan.at("precision") == "bf16");
  CHECK(plan.at("data_parallel") == 8);
  CHECK(plan.at("engine") == "deepspeed");
}

// A chart said 300 GB and a calculator 519 GB.
TEST_CASE("N23: the states of Llama 3.1 70B are 16 bytes a parameter, and 8 x 80 GB cannot hold them") {
  const json one = fit_json("llama3.1-70b --hw h100 --gpus 1 --dtype bf16", 1);
  CHECK(states_bytes(one) == 16.0 * 70'553'706'496.0);
  for (const char* stage : {"0", "1", "2", "3"}) {
    CAPTURE(stage);
    fit_json(std::string("llama3.1-70b --hw h100 --gpus 8 --dtype bf16 --zero ") + stage, 1);
  }
}

// DeepSpeed's estimator has no stage 1, counts gradients at stage 2 as if they were whole, and knows 16 bits
// only. Bytes per parameter of the states on 8 GPUs.
TEST_CASE("N25: the estimator's arithmetic and DeepSpeed's own stand side by side") {
  constexpr double kParameters = 2851e6;
  const std::string model = "params=2851M,largest_layer=32M --hw v100-32gb --gpus 8 ";
  const std::map<std::string, double> right{
      {"--engine deepspeed-estimator --zero 2 --dtype fp16", 4 + 16.0 / 8},
      {"--engine deepspeed --zero 2 --dtype fp16", 2 + 18.0 / 8},
      {"--engine deepspeed --zero 1 --dtype fp16", 4 + 16.0 / 8},
      {"--engine deepspeed --zero 2 --dtype fp32", 4 + 12.0 / 8}};
  for (const auto& one : right) {
    const auto& plan = one.first;
    const auto& bytes = one.second;
    CAPTURE(plan);
    CHECK(states_bytes(fit_json(model + plan, 5)) == doctest::Approx(bytes * kParameters).epsilon(1e-6));
  }
  for (const char* plan : {"--zero 1 --dtype fp16", "--zero 1 --dtype fp32", "--zero 2 --dtype fp32"}) {
    CAPTURE(plan);
    CHECK(states_bytes(fit_json(model + "--engine deepspeed-estimator " + plan, 5)) > 0);
  }
}

TEST_CASE("N27: the preset of a text and image model says what is in it, the file what is not") {
  const json file = json::parse(with_file("models count", "N27_image_text.json", " -o json").out);
  CHECK(file.at("parameters") == 3'880'263'168);
  CHECK(contains(file.at("notes").dump(), "vision tower and its projector are left out"));
  const json preset = json::parse(run_command("models count gemma3-4b -o json").out);
  CHECK(preset.at("parameters") == 3'880'263'168 + 419'816'304);
  CHECK(contains(preset.at("notes").dump(), "vision tower and its projector are counted"));
  CHECK(contains(unwrapped(run_command("models count gemma3-4b").out),
                 "vision tower and its projector are counted"));
}

TEST_CASE("a slip at the top of a DeepSpeed file is noted with the nearest key") {
  const TemporaryFolder folder;
  std::ofstream(folder.file("ds.json")) << R"({"train_batch_sizes": 8, "train_micro_batch_size_per_gpu": 1})";
  const CommandResult result = run_command("fit gpt2 --hw dgx2 -o json -f " + folder.file("ds.json"));
  CHECK(contains(notes_of(result),
                 "ds.json:1: train_batch_sizes: not known, and passed over; nearest: train_batch_size"));
}
