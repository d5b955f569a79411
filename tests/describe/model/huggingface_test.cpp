#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "planner/describe/model/model.hpp"
#include "tests/describe/text/csv_table.hpp"

using namespace zeroplan;
using namespace zeroplan::describe;

namespace {

Model read(std::string_view text) { return read_huggingface_config(parse_json(text, "config.json")); }

// What a user sees, or empty when the file was read.
std::string errors(std::string_view text) {
  try {
    read(text);
    return "";
  } catch (const ConfigurationError& error) {
    std::string all;
    for (const Problem& problem : error.problems()) all += problem.text() + "\n";
    return all;
  }
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

// tests/reference/huggingface: config.json files written from the public shapes of the models they are named
// after, with the keys that the published files hold. The totals are those of
// tests/reference/model_configs.csv; vision towers and multi-token-prediction layers are in the table's
// extra_params and not in a config's language model.
TEST_CASE("a config.json counts the parameters that its model was published with") {
  std::map<std::string, std::map<std::string, std::string>> rows;
  for (auto& row : testing::read_csv(ZEROPLAN_TEST_DATA "/model_configs.csv")) rows[row["name"]] = row;
  std::size_t read_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ZEROPLAN_TEST_DATA "/huggingface")) {
    const std::string name = entry.path().stem().string();
    CAPTURE(name);
    REQUIRE(rows.contains(name));
    const auto& row = rows[name];
    const std::string path = entry.path().string();
    const Model model = read_huggingface_config(parse_json(read_text_file(path), path));
    const Elements left_out = row.at("extra_params").empty() ? 0 : std::stoll(row.at("extra_params"));
    CHECK(model.name == name);
    CHECK(count_parameters(model) == std::stoll(row.at("params_formula")) - left_out);
    // Whatever has parameters that are not counted says so.
    if (left_out != 0) CHECK_FALSE(model.notes.empty());
    ++read_files;
  }
  CHECK(read_files >= 30);
}

TEST_CASE("a config.json gives the same description as the preset of that model") {
  for (const auto& entry : std::filesystem::directory_iterator(ZEROPLAN_TEST_DATA "/huggingface")) {
    const std::string name = entry.path().stem().string();
    CAPTURE(name);
    const Model file = resolve_model(entry.path().string());
    const Model preset = resolve_model(name);
    CHECK(file.architecture == preset.architecture);
    CHECK(file.heads == preset.heads);
    CHECK(file.kv_heads == preset.kv_heads);
    CHECK(file.head_dim == preset.head_dim);
    CHECK(file.ffn == preset.ffn);
    CHECK(file.gated_ffn == preset.gated_ffn);
    CHECK(file.activation == preset.activation);
    CHECK(file.position == preset.position);
    CHECK(file.position_rows == preset.position_rows);
    CHECK(file.tied_embeddings == preset.tied_embeddings);
    CHECK(file.head_bias == preset.head_bias);
    CHECK(file.biases == preset.biases);
    CHECK(file.norm == preset.norm);
    CHECK(file.norms_per_layer == preset.norms_per_layer);
    CHECK(file.final_norm == preset.final_norm);
    CHECK(file.parallel_block == preset.parallel_block);
    CHECK(file.query_key_norm == preset.query_key_norm);
    CHECK(file.norm_placement == preset.norm_placement);
    CHECK(file.norm_weight_offset == preset.norm_weight_offset);
    CHECK(file.scaled_embeddings == preset.scaled_embeddings);
    CHECK(file.attention_scale_dim == preset.attention_scale_dim);
    CHECK(file.attention_soft_cap == preset.attention_soft_cap);
    CHECK(file.logits_soft_cap == preset.logits_soft_cap);
    CHECK(file.rotary_fraction == preset.rotary_fraction);
    CHECK(file.rotary == preset.rotary);
    CHECK(file.window_rotary == preset.window_rotary);
    CHECK(file.rotary_in_windows_only == preset.rotary_in_windows_only);
    CHECK(file.rotary_scaling == preset.rotary_scaling);
    CHECK(file.window == preset.window);
    CHECK(file.norm_epsilon == preset.norm_epsilon);
    CHECK(file.experts.has_value() == preset.experts.has_value());
    CHECK(file.latent.has_value() == preset.latent.has_value());
    if (file.experts && preset.experts) {
      CHECK(file.experts->experts == preset.experts->experts);
      CHECK(file.experts->top_k == preset.experts->top_k);
      CHECK(file.experts->expert_ffn == preset.experts->expert_ffn);
      CHECK(file.experts->shared_ffn == preset.experts->shared_ffn);
      CHECK(file.experts->layers == preset.experts->layers);
    }
  }
}

// The parameters of five public questions; the answers were worked out from the numbers given.
TEST_CASE("R24: a gated MLP has three matrices and its width is a size of its own") {
  const Model model = read(R"({"model_type": "qwen2", "hidden_size": 8192, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 64, "intermediate_size": 24576, "vocab_size": 152064,
    "tie_word_embeddings": false})");
  CHECK(count_parameters(model) == 72287920128);
}

TEST_CASE("R28: head_dim in the file wins over hidden / heads") {
  const Model model = read(R"({"model_type": "qwen3", "hidden_size": 2560, "num_hidden_layers": 36,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 9728,
    "vocab_size": 151936, "tie_word_embeddings": true})");
  CHECK(model.head_dim == 128);
  CHECK(count_parameters(model) == 4022468096);
}

TEST_CASE("R30: MPT's own key names, tied without saying so, no position table beside ALiBi") {
  const Model model = read(R"({"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32,
    "expansion_ratio": 4, "max_seq_len": 2048, "vocab_size": 50432, "no_bias": true, "learned_pos_emb": true,
    "attn_config": {"alibi": true}})");
  CHECK(model.tied_embeddings);
  CHECK(model.position == Position::alibi);
  CHECK(count_parameters(model) == 6649286656);
}

TEST_CASE("R31: T5 with an explicit d_kv has an inner width of 16384 and two attentions in a decoder layer") {
  const Model model =
      read(R"({"model_type": "t5", "d_model": 1024, "d_kv": 128, "d_ff": 65536, "num_heads": 128,
    "num_layers": 24, "vocab_size": 32128})");
  CHECK(model.layers == 24);
  CHECK(model.encoder_layers == 24);
  const Elements expected = 11307188224;  // without norms and relative-bias tables; tolerance 0.01 %
  CHECK(std::abs(count_parameters(model) - expected) <= expected / 10000);
}

// T5 v1.1: 783,150,080 is the count that the library reports for google/t5-v1_1-large.
TEST_CASE("a gated, untied T5 is counted") {
  const Model model = read(R"({"model_type": "t5", "d_model": 1024, "d_kv": 64, "d_ff": 2816, "num_heads": 16,
    "num_layers": 24, "vocab_size": 32128, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false})");
  CHECK(count_parameters(model) == 783150080);
}

// EleutherAI/gpt-j-6b and EleutherAI/gpt-neo-1.3B: 6,050,882,784 and 1,315,575,808 parameters.
TEST_CASE("GPT-J and GPT-Neo have biases on some products only") {
  CHECK(count_parameters(read(R"({"model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_layer": 28,
    "n_positions": 2048, "rotary_dim": 64, "vocab_size": 50400, "tie_word_embeddings": false})")) ==
        6050882784);
  CHECK(count_parameters(
            read(R"({"model_type": "gpt_neo", "hidden_size": 2048, "num_heads": 16, "num_layers": 24,
    "max_position_embeddings": 2048, "vocab_size": 50257})")) == 1315575808);
}

TEST_CASE("keys that a file leaves out take the default of its model type") {
  const std::string shape = R"("hidden_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 32,
    "intermediate_size": 11008, "vocab_size": 32000})";
  CHECK(read(R"({"model_type": "llama", )" + shape).kv_heads == 32);
  CHECK(read(R"({"model_type": "mistral", )" + shape).kv_heads == 8);
  CHECK(read(R"({"model_type": "mistral", "num_key_value_heads": null, )" + shape).kv_heads == 32);
  CHECK_FALSE(read(R"({"model_type": "llama", )" + shape).tied_embeddings);
  CHECK(read(R"({"model_type": "gemma", "num_key_value_heads": 16, )" + shape).tied_embeddings);
  CHECK(read(R"({"model_type": "gemma", "num_key_value_heads": 16, )" + shape).head_dim == 256);
  CHECK(read(R"({"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "vocab_size": 9})")
            .position_rows == 1024);
}

TEST_CASE("layers without experts are found by number") {
  const Model model = read(R"({"model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 8,
    "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 256, "moe_intermediate_size": 32,
    "num_experts": 4, "num_experts_per_tok": 2, "decoder_sparse_step": 2, "mlp_only_layers": [1, 2], "vocab_size": 100})");
  REQUIRE(model.experts);
  CHECK(model.experts->layers == 3);  // 1, 3, 5 and 7 by the step, less 1
  CHECK(model.ffn == 256);
}

TEST_CASE("what is not modelled is refused by name") {
  for (const char* type : {"mamba",        "mamba2",      "jamba",
                           "falcon_mamba", "rwkv",        "recurrent_gemma",
                           "zamba",        "bamba",       "granitemoehybrid",
                           "qwen3_next",   "kimi_linear", "minimax",
                           "bert",         "roberta",     "vit",
                           "whisper",      "clip",        "bart",
                           "pegasus",      "mbart",       "umt5"}) {
    CAPTURE(type);
    const std::string message =
        errors(std::string(R"({"model_type": ")") + type + R"(", "hidden_size": 64})");
    CHECK(contains(message, std::string("\"") + type + "\""));
    CHECK(contains(message, "modelled"));
    CHECK(std::count(message.begin(), message.end(), '\n') == 1);
  }
}

TEST_CASE("an unknown type is answered with the nearest known one, never guessed") {
  CHECK(contains(errors(R"({"model_type": "lama"})"), "nearest: llama"));
  CHECK(contains(errors(R"({"model_type": "something_else_entirely"})"), "expected one of bloom"));
  CHECK(contains(errors(R"({"hidden_size": 64})"), "model_type: missing"));
  CHECK(contains(errors(R"({"model_type": 12})"), "not modelled"));
  CHECK(
      contains(errors(R"({"model_type": "gemma3", "text_config": {"model_type": "mamba"}})"), "state-space"));
  CHECK(contains(errors(R"({"model_type": "gemma3"})"), "text_config: missing"));
  CHECK(contains(errors("[1]"), "expected a map"));
}

TEST_CASE("a required key that is missing and every wrong value are told in one pass") {
  const std::string message = errors(R"({"model_type": "llama",
    "num_hidden_layers": "many",
    "num_attention_heads": -4,
    "intermediate_size": 64, "vocab_size": 100})");
  CHECK(contains(message, "hidden_size: missing"));
  CHECK(contains(message, "config.json:2: num_hidden_layers"));
  CHECK(contains(message, "config.json:3: num_attention_heads"));
}

TEST_CASE("layers of another kind than attention are refused") {
  const std::string shape = R"("hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "intermediate_size": 64, "vocab_size": 100})";
  CHECK(errors(R"({"model_type": "qwen3", "layer_types": ["full_attention", "sliding_attention"], )" + shape)
            .empty());
  CHECK(contains(errors(R"({"model_type": "qwen3", "layer_types": ["linear_attention"], )" + shape),
                 "linear_attention"));
}

TEST_CASE("a shape that cannot be is refused") {
  const auto llama = [](const char* heads, const char* more) {
    return errors(std::string(R"({"model_type": "llama", "hidden_size": 100, "num_hidden_layers": 2,
      "intermediate_size": 64, "vocab_size": 100, "num_attention_heads": )") +
                  heads + more + "}");
  };
  CHECK(llama("10", "").empty());
  CHECK(contains(llama("7", ""), "divisor of hidden 100"));
  CHECK(llama("7", R"(, "head_dim": 16)").empty());
  CHECK(contains(llama("10", R"(, "num_key_value_heads": 3)"), "divisor of the 10 heads"));
}
