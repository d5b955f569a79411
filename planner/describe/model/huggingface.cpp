#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "planner/describe/model/check_model.hpp"
#include "planner/describe/model/huggingface_families.hpp"
#include "planner/describe/model/huggingface_keys.hpp"

namespace zeroplan::describe {

namespace {

struct Family {
  std::string_view type;
  std::string_view title;
  std::string_view classes;  // how the names of its classes in `architectures` begin
  FamilyReader read;
};

// Sorted by type.
constexpr Family kFamilies[] = {
    {"bloom", "BLOOM", "Bloom", read_bloom},
    {"codegen", "CodeGen", "CodeGen", read_gptj},
    {"deepseek_v2", "DeepSeek", "DeepseekV2", read_deepseek},
    {"deepseek_v3", "DeepSeek", "DeepseekV3", read_deepseek},
    {"falcon", "Falcon", "Falcon RW", read_falcon},
    {"gemma", "Gemma", "Gemma", read_gemma},
    {"gemma2", "Gemma 2", "Gemma2", read_gemma},
    {"gemma3_text", "Gemma 3", "Gemma3 Gemma3Text", read_gemma},
    {"glm4_moe", "GLM", "Glm4Moe", read_glm4_experts},
    {"gpt2", "GPT-2", "GPT2", read_gpt2},
    {"gpt_bigcode", "StarCoder", "GPTBigCode", read_gpt2},
    {"gpt_neo", "GPT-Neo", "GPTNeo", read_gpt_neo},
    {"gpt_neox", "GPT-NeoX", "GPTNeoX", read_gpt_neox},
    {"gpt_oss", "gpt-oss", "GptOss", read_gpt_oss},
    {"gptj", "GPT-J", "GPTJ", read_gptj},
    {"kimi_k2", "Kimi", "DeepseekV3 KimiK2", read_deepseek},
    {"llama", "Llama", "Llama", read_llama},
    {"llama4_text", "Llama 4", "Llama4 Llama4Text", read_llama4},
    {"mistral", "Mistral", "Mistral Mistral3", read_llama},
    {"mixtral", "Mixtral", "Mixtral", read_mixtral},
    {"mpt", "MPT", "Mpt", read_mpt},
    {"mt5", "mT5", "MT5", read_t5},
    {"olmo2", "OLMo 2", "Olmo2", read_llama},
    {"opt", "OPT", "OPT", read_opt},
    {"phi", "Phi", "Phi", read_phi},
    {"phi3", "Phi", "Phi3", read_llama},
    {"qwen2", "Qwen2", "Qwen2", read_llama},
    {"qwen2_moe", "Qwen2 MoE", "Qwen2Moe", read_qwen_experts},
    {"qwen3", "Qwen3", "Qwen3", read_llama},
    {"qwen3_moe", "Qwen3 MoE", "Qwen3Moe", read_qwen_experts},
    {"starcoder2", "StarCoder2", "Starcoder2", read_starcoder2},
    {"t5", "T5", "T5", read_t5},
};

// Models of text and images whose language model stands in text_config.
struct Wrapper {
  std::string_view type;
  std::string_view text_type;  // where text_config does not say its own
  std::string_view classes;
};
constexpr Wrapper kWrappers[] = {{"gemma3", "gemma3_text", "Gemma3"},
                                 {"llama4", "llama4_text", "Llama4"},
                                 {"mistral3", "mistral", "Mistral3"}};

constexpr std::string_view kWayOn =
    "params=N plans the states and the traffic of a model of that size, "
    "layers=..,hidden=..,heads=..,vocab=.. a "
    "decoder of that shape";

struct Refusal {
  std::string_view reason;
  std::vector<std::string_view> types;
};

const std::vector<Refusal>& refusals() {
  static const std::vector<Refusal> all = {
      {"state-space and recurrent layers are not modelled",
       {"mamba", "mamba2", "falcon_mamba", "jamba", "bamba", "zamba", "zamba2", "rwkv", "recurrent_gemma",
        "granitemoehybrid", "falcon_h1", "nemotron_h", "plamo2", "xlstm", "lfm2"}},
      {"linear attention is not modelled",
       {"qwen3_next", "qwen3_5", "qwen3_5_moe", "kimi_linear", "minimax", "minimax_m1", "minimax_text_01",
        "retnet"}},
      {"encoders (BERT and its kin) are not modelled",
       {"bert", "roberta", "distilbert", "albert", "electra", "deberta", "deberta-v2", "xlm-roberta",
        "camembert", "mpnet", "ernie", "modernbert", "nomic_bert", "longformer", "big_bird"}},
      {"vision and audio encoders are not modelled",
       {"vit", "clip", "clip_vision_model", "siglip", "siglip_vision_model", "dinov2", "deit", "beit", "swin",
        "whisper", "wav2vec2", "hubert", "wavlm"}},
      {"of the encoder-decoders only T5 is modelled",
       {"bart", "mbart", "pegasus", "pegasus_x", "marian", "m2m_100", "led", "blenderbot", "prophetnet",
        "umt5", "longt5", "switch_transformers", "encoder-decoder"}},
  };
  return all;
}

const Family* find_family(std::string_view type) {
  const auto* found = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                   [&](const Family& f) { return f.type == type; });
  return found == std::end(kFamilies) ? nullptr : found;
}

std::string why_not(const std::string& type) {
  for (const Refusal& refusal : refusals()) {
    if (std::find(refusal.types.begin(), refusal.types.end(), type) != refusal.types.end()) {
      return fmt::format("found {}: {}; {}", zeroplan::quoted(type), refusal.reason, kWayOn);
    }
  }
  std::vector<std::string> known;
  for (const Family& family : kFamilies) known.emplace_back(family.type);
  for (const Wrapper& wrapper : kWrappers) known.emplace_back(wrapper.type);
  const std::string nearest = nearest_name(type, known);
  if (!nearest.empty())
    return fmt::format("found {}, which is not modelled; nearest: {}; {}", zeroplan::quoted(type), nearest,
                       kWayOn);
  return fmt::format("found {}, which is not modelled; expected one of {}; {}", zeroplan::quoted(type),
                     fmt::join(known, ", "), kWayOn);
}

// Hybrid models name the kind of each layer; only those that are attention over keys and values can be
// described.
void refuse_other_layers(MapReader& config) {
  const Value* kinds = config.list("layer_types");
  if (kinds == nullptr) return;
  for (const Value& kind : kinds->items) {
    if (kind.text != "full_attention" && kind.text != "sliding_attention" &&
        kind.text != "chunked_attention") {
      config.problem("layer_types", "found " + zeroplan::quoted(kind.text) +
                                        ", expected full_attention, sliding_attention or chunked_attention");
      return;
    }
  }
}

// The folder that holds a config.json names the model; another file names itself.
std::string name_from_source(const std::string& source) {
  const std::filesystem::path path(source);
  const std::string stem = path.stem().string();
  const std::string folder = path.parent_path().filename().string();
  return stem == "config" && !folder.empty() ? folder : stem;
}

Model read_family(MapReader& config, const std::string& type) {
  Model model;
  const Family* family = find_family(type);
  if (family == nullptr) {
    config.problem("model_type", why_not(type));
    return model;
  }
  model.family = family->title;
  refuse_other_layers(config);
  const std::size_t before = config.problems().list().size();
  family->read(config, type, model);
  read_architecture(config, family->classes, model);
  settle_keys(config, huggingface_keys(), AskedKeys::are_used, model.notes, &model.left_out);
  // A rule between fields says little while a field is wrong.
  if (config.problems().list().size() != before) return model;
  for (const BrokenRule& rule : check_model(model)) {
    config.problem("", rule.key.empty() ? rule.message : rule.key + ": " + rule.message);
  }
  return model;
}

// What stands around text_config.
void read_wrapper(MapReader& config, const Value& text, const Wrapper& wrapper, Model& model) {
  if (config.has("tie_word_embeddings") && text.find("tie_word_embeddings") == nullptr) {
    read_tied(config, model, true);
  }
  read_architecture(config, wrapper.classes, model);
  std::vector<KnownKey> table(huggingface_keys().begin(), huggingface_keys().end());
  table.insert(table.end(), huggingface_wrapper_keys().begin(), huggingface_wrapper_keys().end());
  settle_keys(config, table, AskedKeys::are_used, model.notes, &model.left_out);
  model.notes.emplace_back("the vision tower and its projector are left out: only text_config is described");
}

}  // namespace

Model read_huggingface_config(const Document& document) {
  Problems problems;
  MapReader config(document.root, document.source, "", problems);
  config.allow_unknown();
  problems.throw_if_any();
  config.missing("model_type", "a Hugging Face model type such as gpt2 or llama");
  const std::string type = config.string("model_type").value_or("");
  problems.throw_if_any();

  Model model;
  const auto* wrapper = std::find_if(std::begin(kWrappers), std::end(kWrappers),
                                     [&](const Wrapper& w) { return w.type == type; });
  if (wrapper == std::end(kWrappers)) {
    model = read_family(config, type);
  } else {
    config.missing("text_config", "the language model of " + type);
    if (const Value* text = config.map("text_config")) {
      MapReader text_config(*text, document.source, "text_config", problems);
      text_config.allow_unknown();
      model = read_family(text_config,
                          text_config.string("model_type").value_or(std::string(wrapper->text_type)));
      read_wrapper(config, *text, *wrapper, model);
    }
  }
  problems.throw_if_any();
  model.description_source = document.source;
  model.name = name_from_source(document.source);
  return model;
}

}  // namespace zeroplan::describe
