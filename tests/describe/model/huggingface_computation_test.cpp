#include <doctest/doctest.h>

#include <algorithm>

#include "planner/describe/model/model.hpp"

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

bool notes_name(const Model& model, const std::string& key) {
  return std::any_of(model.notes.begin(), model.notes.end(),
                     [&](const std::string& note) { return note.find(key) != std::string::npos; });
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

// transformers' activations.py and models: "gelu" is torch's exact one.
TEST_CASE("which GELU: the exact one or its tanh form, by the names of transformers") {
  for (const char* name : {"gelu", "gelu_python"}) {
    CHECK(read("gpt_neox", std::string(R"(, "hidden_act": ")") + name + "\"").activation == Activation::gelu);
  }
  for (const char* name : {"gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_accurate"}) {
    CHECK(read("gpt_neox", std::string(R"(, "hidden_act": ")") + name + "\"").activation ==
          Activation::gelu_tanh);
  }
  // Another function, 0.02 from both.
  CHECK(errors("gpt_neox", R"(, "hidden_act": "quick_gelu")").find("expected gelu, gelu_new") !=
        std::string::npos);

  // What they are without a key.
  CHECK(read("gpt_neox", "").activation == Activation::gelu);
  CHECK(read("phi", "").activation == Activation::gelu_tanh);
  CHECK(read("starcoder2", "").activation == Activation::gelu_tanh);
  CHECK(read("gpt2", R"(, "n_embd": 256, "n_layer": 8, "n_head": 4)").activation == Activation::gelu_tanh);
  CHECK(read("falcon", "").activation == Activation::gelu);
  CHECK(read("bloom", R"(, "n_layer": 8, "n_head": 4)").activation == Activation::gelu_tanh);
  CHECK(read("mpt", R"(, "d_model": 256, "n_layers": 8, "n_heads": 4)").activation == Activation::gelu);

  // Gemma's first files say "gelu" in hidden_act, which the model passes over.
  for (const char* type : {"gemma", "gemma2", "gemma3_text"}) {
    const Model gemma = read(type, R"(, "hidden_act": "gelu")");
    CHECK(gemma.activation == Activation::gelu_tanh);
    CHECK(gemma.notes.empty());
    CHECK(read(type, R"(, "hidden_activation": "gelu")").activation == Activation::gelu);
    CHECK(read(type, R"(, "hidden_activation": null)").activation == Activation::gelu_tanh);
  }
  const std::string t5 = R"(, "d_model": 256, "num_layers": 8, "num_heads": 4, "d_ff": 512)";
  CHECK(read("t5", t5 + R"(, "feed_forward_proj": "gated-gelu")").activation == Activation::gelu_tanh);
  CHECK(read("t5", t5 + R"(, "feed_forward_proj": "gelu")").activation == Activation::gelu);
  CHECK(read("mt5", t5).activation == Activation::gelu_tanh);
}

TEST_CASE("Llama 4's layers without rotary positions, by their interval or one by one") {
  const std::string experts = R"(, "num_local_experts": 8, "intermediate_size_mlp": 512)";
  const Model fourth = read("llama4_text", experts);
  CHECK(fourth.rotary_in_windows_only);
  CHECK(fourth.window.full_layers == Layers{3, 7});
  CHECK(read("llama4_text", experts + R"(, "no_rope_layers": [])").window.full_layers ==
        fourth.window.full_layers);
  const Model listed = read("llama4_text", experts + R"(, "no_rope_layers": [1, 0, 1, 1, 1, 0, 1, 1])");
  CHECK(listed.window.full_layers == Layers{1, 5});
  CHECK(!notes_name(listed, "no_rope_layers"));
  CHECK(errors("llama4_text", experts + R"(, "no_rope_layers": [1, 0])").find("no_rope_layers") !=
        std::string::npos);
}

TEST_CASE("a key that says nothing about the model in hand is passed over for the right reason") {
  // Falcon with ALiBi turns nothing, so its rotary base means nothing.
  const Model falcon =
      read("falcon", R"(, "alibi": true, "rope_theta": 20000.0, "rope_scaling": {"type": "linear"})");
  CHECK(!notes_name(falcon, "rope"));
  const Model opt = read("opt", R"(, "ffn_dim": 512, "rope_theta": 5e5, "rms_norm_eps": 1e-6)");
  REQUIRE(opt.notes.size() >= 2);
  for (const char* key : {"rope_theta", "rms_norm_eps"}) {
    const auto names = [&](const std::string& note) {
      return note.find(std::string(key) + ": found ") != std::string::npos &&
             note.find("this model_type has no such key") != std::string::npos;
    };
    CHECK(std::any_of(opt.notes.begin(), opt.notes.end(), names));
  }
}
