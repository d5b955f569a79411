#include <doctest/doctest.h>

#include "planner/describe/model/model.hpp"

using namespace zeroplan;
using namespace zeroplan::describe;
using Window = program::AttentionWindow::Kind;
using Scaling = program::RotaryFrequencies::Scaling;

// The keys of a model file that say how it computes, and what is wrong with them.
namespace {

Model read(const std::string& keys, const std::string& position = "rotary") {
  return read_model_yaml(
      parse_yaml("schema: zeroplan.model/1\nname: mine\nhidden: 48\nlayers: 6\nheads: 4\n"
                 "ffn: 96\ngated_ffn: true\nactivation: silu\nvocabulary: 64\n"
                 "tied_embeddings: true\nnorm: rms_norm\nbiases: none\nposition: " +
                     position + "\n" + keys,
                 "mine.yaml"));
}

std::string errors(const std::string& keys, const std::string& position = "rotary") {
  try {
    read(keys, position);
    return "";
  } catch (const ConfigurationError& error) {
    std::string all;
    for (const Problem& problem : error.problems()) all += problem.text() + "\n";
    return all;
  }
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

using Layers = std::vector<std::int32_t>;

}  // namespace

TEST_CASE("a model file says how the model computes; without a key it is what most models are") {
  const Model plain = read("");
  CHECK(plain.norm_placement == NormPlacement::before);
  CHECK(plain.norm_epsilon == 1e-5);
  CHECK(plain.rotary == program::RotaryFrequencies{});
  CHECK(plain.window.kind == Window::none);
  const Model model = read(R"(norm_epsilon: 1e-6
norm_weight_offset: true
scaled_embeddings: true
attention_scale_dim: 144
attention_soft_cap: 50
logits_soft_cap: 30
rotary: {base: 1000000, fraction: 0.5, window_base: 10000, scaling: {type: linear, factor: 8}}
attention_window: {kind: sliding, size: 512, full_every: 3}
)");
  CHECK(model.norm_epsilon == 1e-6);
  CHECK(model.norm_weight_offset);
  CHECK(model.scaled_embeddings);
  CHECK(model.attention_scale_dim == 144);
  CHECK(model.attention_soft_cap == 50);
  CHECK(model.logits_soft_cap == 30);
  CHECK(model.rotary.base == 1e6);
  CHECK(model.rotary_fraction == 0.5);
  CHECK(model.rotary.scaling == Scaling::linear);
  CHECK(model.rotary.factor == 8);
  REQUIRE(model.window_rotary);
  CHECK(model.window_rotary->base == 1e4);
  CHECK(model.window.size == 512);
  CHECK(model.window.full_layers == Layers{2, 5});
  CHECK(read("attention_window: {kind: chunked, size: 8, full_layers: [1, 4]}\n").window.full_layers ==
        Layers{1, 4});
  CHECK(read("rotary: {scaling: yarn}\n").rotary_scaling == "yarn");
  CHECK(read("norm_placement: branch\n").norm_placement == NormPlacement::branch);
}

TEST_CASE("what is wrong with how a model computes is told with its key") {
  CHECK(has(errors("rotary: {base: 500000}\n", "learned\nposition_rows: 8"), "rotary"));
  CHECK(has(errors("rotary: {window_base: 100}\n"), "attention_window"));
  CHECK(has(errors("rotary: {windows_only: true}\n"), "attention_window"));
  CHECK(has(errors("rotary: {fraction: 0}\n"), "rotary.fraction"));
  CHECK(has(errors("rotary: {fraction: 0.05}\n"), "rotary.fraction"));
  CHECK(has(errors("rotary: {bases: 5}\n"), "base"));
  CHECK(has(errors("rotary: {scaling: {type: llama3, factor: 8}}\n"), "original_sequence"));
  CHECK(has(errors("rotary: {scaling: {type: llama3, factor: 8, low_frequency: 4, high_frequency: 4, "
                   "original_sequence: 8}}\n"),
            "high_frequency"));
  CHECK(has(errors("rotary: {scaling: {factor: 8}}\n"), "rotary.scaling.type"));
  CHECK(has(errors("attention_window: {kind: sliding}\n"), "attention_window.size"));
  CHECK(has(errors("attention_window: {kind: none, size: 4}\n"), "attention_window.kind"));
  CHECK(has(errors("attention_window: {kind: sliding, size: 4, full_layers: [6]}\n"), "full_layers"));
  CHECK(has(errors("attention_window: {kind: sliding, size: 4, full_layers: [2, 1]}\n"), "rise"));
  CHECK(
      has(errors("attention_window: {kind: sliding, size: 4, full_layers: [1], full_every: 2}\n"), "either"));
  CHECK(has(errors("attention_soft_cap: 0\n"), "attention_soft_cap"));
  CHECK(has(errors("norms_per_layer: 4\nnorm_placement: branch\n"), "norm_placement"));
}
