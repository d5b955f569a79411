#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/command.hpp"

using namespace zeroplan::test;
using nlohmann::json;

// What `validate` refuses before anything runs, by exit code 3, and why.

namespace {

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

std::string refusal(const std::string& line) {
  const CommandResult result = run_command("validate " + line + " -o json");
  CAPTURE(line);
  CAPTURE(result.err);
  CHECK(result.exit_code == 3);
  const json record = json::parse(result.out);
  CHECK(record["outcome"] == "not_possible");
  CHECK(record["measured"].is_null());
  return record["reason"];
}

std::string model_file(const TemporaryFolder& folder, const std::string& keys) {
  std::string path = folder.file("model.yaml");
  std::ofstream(path) << "schema: zeroplan.model/1\nname: mine\nhidden: 48\nlayers: 2\nheads: 4\nffn: 96\n"
                         "gated_ffn: true\nactivation: silu\nvocabulary: 64\ntied_embeddings: true\n"
                         "norm: rms_norm\nbiases: none\n"
                      << keys;
  return path;
}

}  // namespace

// findings/user.md, W4: this ended in "yes: every figure is within its tolerance" of an A100.
TEST_CASE("a run on processors does not speak for a machine of GPUs, unless it is asked for by name") {
  const std::string reason = refusal("gpt2 --hw a100 --gpus 1 --seq 8");
  CHECK(has(reason, "a100"));
  CHECK(has(reason, "--device cpu"));
}

TEST_CASE("--device: what it may be") {
  for (const char* wrong : {"gpu", "cpu:1", "cuda:x", "cuda:-1", "cuda:"}) {
    const CommandResult result = run_words({"validate", "gpt2", "--device", wrong});
    CAPTURE(wrong);
    CHECK(result.exit_code == 2);
    CHECK(has(result.err, "--device"));
  }
}

// findings/executor.md, section 1.2, numbers 5 and 6.
TEST_CASE("a model whose training would be another's is refused by the name of what differs") {
  const TemporaryFolder folder;
  const std::string run = " --seq 8 --dtype fp32";
  CHECK(has(refusal("mixtral-8x7b" + run), "mixture_of_experts"));
  CHECK(has(refusal("qwen3-0.6b --gpus 2 --tp 2" + run), "query and key heads"));
  const std::string latent =
      "position: rotary\nlatent_attention: {q_lora: 0, kv_lora: 16, qk_nope_dim: 8, qk_rope_dim: 4, v_dim: "
      "8}\n";
  CHECK(has(refusal(model_file(folder, latent) + run), "latent_attention"));
  const std::string extra = "position: rotary\nextra:\n  - {name: gate, per: model, elements: 50}\n";
  CHECK(has(refusal(model_file(folder, extra) + run + " --gpus 4 --tp 2 --zero 3"), "gate"));
  CHECK(has(refusal(model_file(folder, "position: rotary\nrotary: {scaling: yarn}\n") + run), "yarn"));
  CHECK(
      has(refusal(model_file(folder, "position: rotary\nnorm_placement: after\n") + run), "norm_placement"));
}

namespace {

// A config.json of a small model with one key set.
std::string config_file(const TemporaryFolder& folder, json config, const std::string& key,
                        const json& value) {
  const std::size_t dot = key.find('.');
  (dot == std::string::npos ? config[key] : config[key.substr(0, dot)][key.substr(dot + 1)]) = value;
  std::string path = folder.file("config.json");
  std::ofstream(path) << config.dump();
  return path;
}

const json kMpt = {{"model_type", "mpt"}, {"d_model", 32},    {"n_layers", 2},
                   {"n_heads", 2},        {"vocab_size", 64}, {"max_seq_len", 16}};
const json kBloom = {{"model_type", "bloom"}, {"hidden_size", 32}, {"n_layer", 2},
                     {"n_head", 2},           {"vocab_size", 64},  {"use_cache", true}};
const json kGpt2 = {{"model_type", "gpt2"}, {"n_embd", 32},     {"n_layer", 2},
                    {"n_head", 2},          {"vocab_size", 64}, {"n_positions", 16}};

}  // namespace

// Each was a note once, and the run that followed trained a model without it.
TEST_CASE("a key of config.json that the run leaves out is an approximation, and validate refuses it") {
  const TemporaryFolder folder;
  const auto refused = [&](const json& config, const std::string& key, const json& value) {
    CAPTURE(key);
    const std::string file = config_file(folder, config, key, value);
    (void)refusal(file + " --seq 8 --dtype fp32");
    const json record = json::parse(run_command("fit " + file + " --hw dgx-h100 -o json").out);
    const json& last = record["approximations"].back();  // BLOOM's embedding norm stands before it
    CHECK(has(last["what"], key));
    CHECK(last["trains_another_model"] == true);
    CHECK(record["notes"].empty());
  };
  refused(kMpt, "attn_config.softmax_scale", 0.5);
  refused(kMpt, "attn_config.clip_qkv", 8);
  refused(kMpt, "attn_config.prefix_lm", true);
  refused(kMpt, "logit_scale", "inv_sqrt_d_model");
  refused(kBloom, "apply_residual_connection_post_layernorm", true);
  refused(kGpt2, "scale_attn_weights", false);
  refused(kGpt2, "scale_attn_by_inverse_layer_idx", true);
}

TEST_CASE("what leaves a key's model as it is runs") {
  const TemporaryFolder folder;
  const std::string plain = config_file(folder, kGpt2, "scale_attn_weights", true);
  CHECK(run_command("validate " + plain + " --seq 8 --dtype fp32").exit_code == 0);
}

// It ended in "no: losses 0", as if something were wrong with the run.
TEST_CASE("heads whose elements make no pairs, and norms over one element, are refused before the run") {
  CHECK(has(refusal("layers=1,hidden=6,heads=2,ffn=8,vocab=9,gated=true --seq 4 --dtype fp32"),
            "rotary embeddings turn pairs of a head's elements, and there are 3"));
  CHECK(has(refusal("layers=1,hidden=1,heads=1,vocab=9 --seq 4 --dtype fp32"), "a norm over one element"));
}

TEST_CASE("a vocabulary of one token is refused, because nothing can be learned from it") {
  CHECK(has(refusal("layers=1,hidden=8,heads=2,vocab=1 --seq 4 --dtype fp32"), "vocabulary of one token"));
}

TEST_CASE("every answer about a plan lists the approximations of its model") {
  const std::string plan = " mixtral-8x7b --hw dgx-h100 --nodes 8 --zero 3";
  for (const std::string command : {"fit", "compare", "explain peak_bytes"}) {
    CAPTURE(command);
    const CommandResult table = run_command(command + plan);
    CHECK(has(table.out, "Approximations"));
    CHECK(has(table.out, "mixture_of_experts: "));
    const json record = json::parse(run_command(command + plan + " -o json").out);
    REQUIRE(!record["approximations"].empty());
    CHECK(record["approximations"][0]["key"] == "mixture_of_experts");
    CHECK(record["approximations"][0]["trains_another_model"] == true);
    CHECK(record["approximations"][0]["changes_figures"] == true);
  }
  CHECK(!has(run_command("fit gpt2 --hw dgx-h100").out, "Approximations"));
}
