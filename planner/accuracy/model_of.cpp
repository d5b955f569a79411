#include <fmt/format.h>

#include <array>
#include <cmath>

#include "planner/accuracy/modelled_run.hpp"

namespace zeroplan::accuracy {
namespace {

using describe::Model;

constexpr std::int64_t kGptVocabulary = 50257;  // GPT-2's byte-pair encoding
constexpr std::int64_t kGatedWidthMultiple = 256;
// How far a count may be from the stated one for a block to be told by it.
constexpr double kCountTolerance = 0.02;

bool is_gated(Block block) { return block == Block::llama || block == Block::qwen; }

std::int64_t required(const std::optional<std::int64_t>& value) {
  if (!value) throw NotModelled{"the model's shape is not stated"};
  return *value;
}

std::int64_t usual_width(Block block, std::int64_t hidden) {
  if (!is_gated(block)) return 4 * hidden;
  return round_up(hidden * 8 / 3, kGatedWidthMultiple);
}

void take_block(Model& model, Block block) {
  switch (block) {
    case Block::opt:
      model.activation = describe::Activation::relu;
      break;
    case Block::mpt:
      model.activation = describe::Activation::gelu;
      model.biases = describe::Bias::none;
      model.norm_bias = false;
      break;
    case Block::qwen:
      model.biases = describe::Bias::qkv;
      break;
    case Block::nemotron:
      model.activation = describe::Activation::relu;
      model.biases = describe::Bias::none;
      model.position = describe::Position::rotary;
      model.tied_embeddings = false;
      break;
    case Block::falcon:
      model.biases = describe::Bias::none;
      model.position = describe::Position::rotary;
      model.parallel_block = true;
      model.norms_per_layer = 1;
      break;
    default:
      break;
  }
}

Model make_model(const Run& run, Block block) {
  const std::int64_t layers = required(run.layers);
  const std::int64_t hidden = required(run.hidden);
  const std::int64_t heads = required(run.heads);
  if (!run.vocabulary && block != Block::gpt2) throw NotModelled{"the vocabulary is not stated"};
  Model model = describe::read_model_spelling(
      fmt::format("layers={},hidden={},heads={},kv_heads={},vocab={},ffn={},gated={}", layers, hidden, heads,
                  run.kv_heads.value_or(heads), run.vocabulary.value_or(kGptVocabulary),
                  run.ffn.value_or(usual_width(block, hidden)), is_gated(block)));
  model.name = run.model;
  take_block(model, block);
  if (run.tied_embeddings) model.tied_embeddings = *run.tied_embeddings;
  return model;
}

bool has_stated_count(const Run& run, const Model& model) {
  const auto count = static_cast<double>(describe::count_parameters(model, run.sequence.value_or(0)));
  const double stated = run.parameters_billions.value_or(0) * 1e9;
  return std::abs(count - stated) <= kCountTolerance * stated;
}

}  // namespace

Model model_of(const Run& run) {
  if (run.expert_parallel.value_or(1) > 1) throw NotModelled{"expert parallelism"};
  if (run.block) return make_model(run, *run.block);
  for (const Block block : {Block::gpt2, Block::llama}) {
    Model model = make_model(run, block);
    if (has_stated_count(run, model)) return model;
  }
  throw NotModelled{"the kind of model is not stated, and not known by its parameter count"};
}

}  // namespace zeroplan::accuracy
