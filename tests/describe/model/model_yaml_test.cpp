#include <doctest/doctest.h>

#include <algorithm>

#include "planner/describe/model/model.hpp"
#include "planner/describe/text/embedded.hpp"

using namespace zeroplan;
using namespace zeroplan::describe;

namespace {

// A valid description, with `more` put at its end; a key of `more` replaces the one that is there.
std::string description(const std::string& more = "") {
  const std::vector<std::string> lines = {"schema: zeroplan.model/1",
                                          "name: tiny",
                                          "hidden: 64",
                                          "layers: 2",
                                          "heads: 4",
                                          "ffn: 256",
                                          "gated_ffn: false",
                                          "activation: gelu",
                                          "vocabulary: 1000",
                                          "tied_embeddings: true",
                                          "max_sequence: 128",
                                          "position: learned",
                                          "norm: layer_norm",
                                          "biases: all"};
  std::string text;
  for (const std::string& line : lines) {
    const std::string key = line.substr(0, line.find(':') + 1);
    if (more.starts_with(key) || more.find("\n" + key) != std::string::npos) continue;
    text += line + "\n";
  }
  return text + more;
}

Model read(const std::string& text) { return read_model_yaml(parse_yaml(text, "tiny.yaml")); }

std::string errors(const std::string& text) {
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

std::int64_t problem_count(const std::string& text) {
  const std::string all = errors(text);
  return std::count(all.begin(), all.end(), '\n');
}

}  // namespace

TEST_CASE("a short description takes the defaults of the documentation") {
  const Model model = read(description());
  CHECK(model.name == "tiny");
  CHECK(model.description_source == "tiny.yaml");
  CHECK(model.kv_heads == 4);
  CHECK(model.head_dim == 16);
  CHECK(model.position_rows == 128);
  CHECK(model.norms_per_layer == 2);
  CHECK(model.final_norm);
  CHECK_FALSE(model.published);
  // 12 h^2 + 13 h per block; token and position tables; the final norm.
  CHECK(count_parameters(model) == 2 * (12 * 64 * 64 + 13 * 64) + (1000 + 128) * 64 + 2 * 64);
}

TEST_CASE("every preset's file is named as its model") {
  for (const EmbeddedFile& file : embedded_models()) {
    CAPTURE(file.path);
    CHECK(read_model_yaml(parse_yaml(file.text, std::string(file.path))).name == file.name);
  }
}

TEST_CASE("each required key is named when it is missing") {
  for (const char* key : {"schema", "name", "hidden", "layers", "heads", "ffn", "gated_ffn", "activation",
                          "vocabulary", "tied_embeddings", "position", "norm", "biases"}) {
    CAPTURE(key);
    CHECK(contains(errors(description(std::string(key) + ":\n")), std::string(key) + ": missing"));
  }
  CHECK(contains(errors(description("max_sequence:\n")), "position_rows: missing"));
}

TEST_CASE("limits are refused one past the last value") {
  CHECK(contains(errors(description("hidden: 1048577\n")), "hidden"));
  CHECK(contains(errors(description("hidden: 0\n")), "hidden"));
  CHECK(contains(errors(description("layers: 100001\n")), "layers"));
  CHECK(contains(errors(description("vocabulary: 16777217\n")), "vocabulary"));
  CHECK(contains(errors(description("ffn: 4194305\n")), "ffn"));
  CHECK(errors(description("vocabulary: 16777216\n")).empty());
  CHECK(errors(description("ffn: 4194304\n")).empty());
  CHECK(errors(description("layers: 100000\n")).empty());
}

TEST_CASE("more than 1e15 parameters are refused without overflow") {
  CHECK(contains(errors(description("hidden: 1048576\nlayers: 100000\nffn: 4194304\n")), "at most 1e15"));
  CHECK(contains(errors(description("hidden: 65536\nffn:\nmixture_of_experts: {experts: 65536, top_k: 1, "
                                    "expert_ffn: 4194304, layers: 2}\n")),
                 "at most 1e15"));
}

TEST_CASE("rules between keys") {
  CHECK(contains(errors(description("heads: 5\n")), "divisor of hidden 64"));
  CHECK(errors(description("heads: 5\nhead_dim: 16\n")).empty());
  CHECK(contains(errors(description("kv_heads: 3\n")), "divisor of the 4 heads"));
  CHECK(contains(errors(description("kv_heads: 8\n")), "divisor of the 4 heads"));
  CHECK(contains(errors(description("norms_per_layer: 3\n")), "1, 2 or 4"));
  CHECK(contains(errors(description("position: rotary\nposition_rows: 10\n")), "only learned"));
  CHECK(contains(errors(description("norm: rms_norm\nnorm_bias: false\n")), "has no bias"));
  CHECK(contains(errors(description("encoder_layers: 2\n")), "encoder_decoder"));
  CHECK(contains(errors(description("architecture: encoder_decoder\n")), "encoder_layers: missing"));
  CHECK(contains(errors(description("position: relative_bias\nposition_rows: 32\n")), "encoder_decoder"));
}

TEST_CASE("rules of expert layers and of latent attention") {
  const std::string experts = "mixture_of_experts: {experts: 8, top_k: 2, expert_ffn: 32, layers: ";
  CHECK(errors(description(experts + "1}\n")).empty());
  CHECK(contains(errors(description(experts + "3}\n")), "at most the 2 layers"));
  CHECK(contains(errors(description(experts + "2}\n")), "every layer has experts"));
  CHECK(errors(description(experts + "2}\nffn:\n")).empty());
  CHECK(
      contains(errors(description("mixture_of_experts: {experts: 2, top_k: 3, expert_ffn: 32, layers: 1}\n")),
               "at most the 2 experts"));
  const std::string latent =
      "latent_attention: {q_lora: 0, kv_lora: 8, qk_nope_dim: 16, qk_rope_dim: 8, v_dim: 16}\n";
  CHECK(errors(description(latent + "biases: none\n")).empty());
  CHECK(contains(errors(description(latent)), "expected none with latent attention"));
  CHECK(contains(errors(description(latent + "biases: none\nhead_dim: 16\n")),
                 "qk_nope_dim + qk_rope_dim = 24"));
}

TEST_CASE("extra parameters are counted as often as they say") {
  const Elements plain = count_parameters(read(description()));
  const Model model =
      read(description("extra:\n  - {name: tower, per: model, elements: 100, active: false}\n"
                       "  - {name: sink, per: layer, elements: 4}\n"));
  CHECK(count_parameters(model) == plain + 100 + 2 * 4);
  CHECK(count_active_parameters(model) == plain + 2 * 4);
  CHECK(
      contains(errors(description("extra:\n  - {name: tower, per: mode, elements: 100}\n")), "extra[0].per"));
  CHECK(contains(errors(description("extra:\n  - {name: tower, per: model}\n")), "elements: missing"));
}

TEST_CASE("a LayerNorm without bias has a weight only") {
  const Elements plain = count_parameters(read(description()));
  CHECK(count_parameters(read(description("norm_bias: false\n"))) == plain - 5 * 64);
}

TEST_CASE("unknown keys and wrong values are all told at once, with the line and the nearest name") {
  const std::string text = description("hiden: 3\nbiases: some\nlayers: 1.5\ntied_embeddings: 7\n");
  CHECK(problem_count(text) == 4);
  CHECK(contains(errors(text), "nearest: hidden"));
  CHECK(contains(errors(text), "tiny.yaml:12: hiden"));
  CHECK(contains(errors(description("heads: 5\n")), "tiny.yaml:14: heads"));
  CHECK(contains(errors(description("schema: zeroplan.model/2\n")), "expected zeroplan.model/1"));
  CHECK(contains(errors("- 1\n"), "expected a map"));
}
