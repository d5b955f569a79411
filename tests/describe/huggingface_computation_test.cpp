#include <doctest/doctest.h>

#include "planner/describe/model.hpp"

using namespace zeroplan;
using namespace zeroplan::describe;
using Window = program::AttentionWindow::Kind;
using Scaling = program::RotaryFrequencies::Scaling;

// What a config.json says of how its model computes. Expected values: the configuration classes of
// transformers 4.57.1 and the published files named in models/*.yaml.
namespace {

Model read(const std::string& type, const std::string& keys) {
  return read_huggingface_config(parse_json(R"({"model_type": ")" + type + R"(", "hidden_size": 256,
    "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 512,
    "vocab_size": 1000, "tie_word_embeddings": false)" +
                                                keys + "}",
                                            "config.json"));
}

std::string errors(const std::string& type, const std::string& keys) {
  try {
    read(type, keys);
    return "";
  } catch (const ConfigurationError& error) {
    std::string all;
    for (const Problem& problem : error.problems()) all += problem.text() + "\n";
    return all;
  }
}

using Layers = std::vector<std::int32_t>;

}  // namespace

TEST_CASE("a rotary base, its scaling and an epsilon are read, by every name that files use") {
  const Model llama = read("llama", R"(, "rope_theta": 500000.0, "rms_norm_eps": 1e-6, "rope_scaling":
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 8192})");
  CHECK(llama.rotary.base == 500000);
  CHECK(llama.rotary.scaling == Scaling::llama3);
  CHECK(llama.rotary.factor == 8);
  CHECK(llama.rotary.original_sequence == 8192);
  CHECK(llama.norm_epsilon == 1e-6);
  CHECK(read("llama", R"(, "rope_scaling": {"type": "linear", "factor": 2.0})").rotary.scaling ==
        Scaling::linear);
  CHECK(read("llama", R"(, "rope_scaling": {"type": "yarn", "factor": 4.0})").rotary_scaling == "yarn");
  CHECK(read("llama", R"(, "rope_scaling": null)").rotary == program::RotaryFrequencies{});
  CHECK(
      read("llama", R"(, "rope_parameters": {"rope_type": "default", "rope_theta": 70000.0})").rotary.base ==
      70000);
  CHECK(read("gpt_neox", R"(, "rotary_pct": 0.5, "rotary_emb_base": 20000)").rotary_fraction == 0.5);
  CHECK(read("gpt_neox", R"(, "rotary_pct": 0.5, "rotary_emb_base": 20000)").rotary.base == 20000);
  CHECK(read("gpt_neox", "").rotary_fraction == 0.25);
  CHECK(errors("llama", R"(, "rope_theta": -1)").find("rope_theta") != std::string::npos);
}

TEST_CASE(
    "windows: all layers of Mistral, by turns in Gemma 2, five of six in Gemma 3, or as layer_types says") {
  const Model mistral = read("mistral", "");
  CHECK(mistral.window.kind == Window::sliding);
  CHECK(mistral.window.size == 4096);
  CHECK(mistral.window.full_layers.empty());
  CHECK(read("mistral", R"(, "sliding_window": null)").window.kind == Window::none);
  CHECK(read("gemma2", "").window.full_layers == Layers{1, 3, 5, 7});
  const Model third = read("gemma3_text", R"(, "sliding_window": 1024)");
  CHECK(third.window.size == 1024);
  CHECK(third.window.full_layers == Layers{5});
  REQUIRE(third.window_rotary);
  CHECK(third.window_rotary->base == 10000);
  CHECK(third.rotary.base == 1e6);
  const Model listed = read("gemma2", R"(, "layer_types": ["full_attention", "sliding_attention",
    "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention",
    "full_attention"])");
  CHECK(listed.window.full_layers == Layers{0, 7});
  CHECK(errors("gemma2", R"(, "layer_types": ["full_attention"])").find("layer_types") != std::string::npos);
  CHECK(read("qwen2", R"(, "sliding_window": 4096)").window.kind == Window::none);
  CHECK(read("qwen2", R"(, "use_sliding_window": true, "max_window_layers": 3)").window.full_layers ==
        Layers{0, 1, 2});
  CHECK(read("qwen2", R"(, "use_sliding_window": true)").window.kind == Window::none);  // from layer 28 on
}

TEST_CASE("GPT-Neo's local layers, by turns or as attention_types says, and its unscaled scores") {
  const auto neo = [](const std::string& keys) {
    return read_huggingface_config(parse_json(R"({"model_type": "gpt_neo", "hidden_size": 64, "num_layers": 4,
      "num_heads": 4, "vocab_size": 100)" + keys + "}",
                                              "config.json"));
  };
  CHECK(neo("").window.full_layers == Layers{0, 2});
  CHECK(neo("").window.size == 256);
  CHECK(neo("").attention_scale_dim == 1);
  CHECK(neo(R"(, "attention_types": [[["global"], 1], [["local", "local", "global"], 1]])")
            .window.full_layers == Layers{0, 3});
  CHECK_THROWS_AS(neo(R"(, "attention_types": [[["global", "local"], 9]])"), ConfigurationError);
  CHECK_THROWS_AS(neo(R"(, "attention_types": [3])"), ConfigurationError);
}

TEST_CASE("Gemma's caps and scales; null takes a cap away") {
  const Model second = read("gemma2", R"(, "query_pre_attn_scalar": 144, "head_dim": 128)");
  CHECK(second.attention_soft_cap == 50);
  CHECK(second.logits_soft_cap == 30);
  CHECK(second.attention_scale_dim == 144);
  CHECK(second.norm_weight_offset);
  CHECK(second.scaled_embeddings);
  CHECK(read("gemma2", R"(, "attn_logit_softcapping": null)").attention_soft_cap == 0);
  CHECK(read("gemma2", R"(, "head_dim": 256)").attention_scale_dim == 0);  // the usual scale
}

TEST_CASE("GPT-J turns a part of its heads") {
  const auto read_gptj = [](const std::string& keys) {
    return read_huggingface_config(parse_json(R"({"model_type": "gptj", "n_embd": 1024, "n_head": 4,
      "n_layer": 2, "vocab_size": 100)" + keys + "}",
                                              "config.json"));
  };
  CHECK(read_gptj(R"(, "rotary_dim": 128)").rotary_fraction == 0.5);
  CHECK(read_gptj("").rotary_fraction == 0.25);
  CHECK(read_gptj(R"(, "rotary_dim": null)").rotary_fraction == 1);
}
