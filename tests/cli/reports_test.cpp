#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/command.hpp"

using namespace zeroplan::test;
using nlohmann::json;

// Files of public questions (tests/reference/reports/README.md), with what is right about each.
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

}  // namespace

TEST_CASE("N03: a 16-bit training says that it keeps fp32 master weights") {
  const CommandResult result = run_command(
      "fit llama2-7b --hw a100-80gb --gpus 1 --engine pytorch --dtype bf16 --optimizer sgd --seq 512 "
      "--recompute full");
  CHECK(contains(unwrapped(result.out), "without fp32 master weights"));
}

TEST_CASE("N06: logits that decide say that a fused loss is not modelled") {
  const std::string line = "fit qwen2.5-3b --seq 1024 --recompute full --hw " + kFiles + "box4x4090.yaml -f";
  const CommandResult result = with_file(line, "N06_offload_all.json", " -o json");
  CHECK(contains(result.out, "a fused loss that never holds them is not modelled"));
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
