#include "planner/describe/text/foreign_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "planner/describe/plan/accelerate_keys.hpp"
#include "planner/describe/plan/deepspeed_keys.hpp"
#include "planner/describe/plan/plan.hpp"

namespace zeroplan::describe {
namespace {

constexpr std::size_t kKeysToRecognise = 2;
constexpr std::size_t kKeysShown = 4;

// A key of another program, and what says the same here: an option, or a part of a model's spelling ("layers=").
struct SameThing {
  std::string_view key;
  std::string_view option;
};

struct ForeignKind {
  std::string_view title;
  std::span<const std::string_view> own_keys;
  std::span<const SameThing> same;
};

// '-' is written as '_'; a section of a TOML file is "[name]".
constexpr std::string_view kNeoxKeys[] = {"pipe_parallel_size",
                                          "model_parallel_size",
                                          "num_layers",
                                          "hidden_size",
                                          "num_attention_heads",
                                          "seq_length",
                                          "max_position_embeddings",
                                          "train_iters",
                                          "lr_decay_iters",
                                          "attention_config",
                                          "pos_emb",
                                          "rotary_pct",
                                          "gpt_j_residual",
                                          "no_weight_tying",
                                          "scaled_upper_triang_masked_softmax_fusion",
                                          "bias_gelu_fusion",
                                          "data_path",
                                          "checkpoint_activations",
                                          "checkpoint_num_layers",
                                          "synchronize_each_layer",
                                          "hidden_dropout",
                                          "attention_dropout",
                                          "vocab_file",
                                          "merge_file",
                                          "tokenizer_type",
                                          "output_layer_init_method",
                                          "init_method",
                                          "distributed_backend",
                                          "eval_interval",
                                          "make_vocab_size_divisible_by"};
constexpr SameThing kNeoxSame[] = {
    {"model_parallel_size", "--tp"},
    {"train_micro_batch_size_per_gpu", "--micro-batch"},
    {"gradient_accumulation_steps", "--grad-accum"},
    {"train_batch_size", "--global-batch"},
    {"seq_length", "--seq"},
    {"num_layers", "layers="},
    {"hidden_size", "hidden="},
    {"num_attention_heads", "heads="},
};

constexpr std::string_view kFoundryKeys[] = {"max_seq_len",
                                             "global_train_batch_size",
                                             "device_train_microbatch_size",
                                             "device_eval_batch_size",
                                             "train_loader",
                                             "eval_loader",
                                             "callbacks",
                                             "loggers",
                                             "algorithms",
                                             "max_duration",
                                             "precision",
                                             "tokenizer",
                                             "variables",
                                             "run_name",
                                             "eval_interval",
                                             "eval_first",
                                             "global_seed",
                                             "progress_bar",
                                             "icl_tasks",
                                             "save_folder"};
constexpr SameThing kFoundrySame[] = {
    {"max_seq_len", "--seq"},
    {"global_train_batch_size", "--global-batch"},
    {"device_train_microbatch_size", "--micro-batch"},
    {"precision", "--dtype"},
};

constexpr std::string_view kTrainerKeys[] = {"per_device_train_batch_size",
                                             "per_device_eval_batch_size",
                                             "num_train_epochs",
                                             "learning_rate",
                                             "output_dir",
                                             "warmup_ratio",
                                             "warmup_steps",
                                             "lr_scheduler_type",
                                             "logging_steps",
                                             "save_steps",
                                             "save_strategy",
                                             "eval_strategy",
                                             "evaluation_strategy",
                                             "gradient_checkpointing",
                                             "optim",
                                             "fsdp",
                                             "deepspeed",
                                             "report_to",
                                             "max_steps",
                                             "model_name_or_path",
                                             "remove_unused_columns",
                                             "ddp_timeout",
                                             "torch_compile",
                                             "use_liger_kernel",
                                             "max_length",
                                             "packing",
                                             "overwrite_output_dir",
                                             "save_total_limit"};
constexpr SameThing kTrainerSame[] = {
    {"per_device_train_batch_size", "--micro-batch"},
    {"gradient_accumulation_steps", "--grad-accum"},
    {"max_length", "--seq"},
    {"deepspeed", "-f"},
};

constexpr std::string_view kFactoryKeys[] = {"finetuning_type",
                                             "template",
                                             "cutoff_len",
                                             "dataset_dir",
                                             "do_train",
                                             "lora_rank",
                                             "lora_target",
                                             "overwrite_cache",
                                             "preprocessing_num_workers",
                                             "dataloader_num_workers",
                                             "dataset",
                                             "plot_loss",
                                             "quantization_bit",
                                             "model_name_or_path",
                                             "per_device_train_batch_size",
                                             "num_train_epochs",
                                             "learning_rate",
                                             "output_dir",
                                             "lr_scheduler_type",
                                             "logging_steps",
                                             "save_steps",
                                             "deepspeed",
                                             "freeze_vision_tower",
                                             "max_samples",
                                             "ddp_timeout",
                                             "val_size",
                                             "overwrite_output_dir"};
constexpr SameThing kFactorySame[] = {
    {"per_device_train_batch_size", "--micro-batch"},
    {"gradient_accumulation_steps", "--grad-accum"},
    {"cutoff_len", "--seq"},
    {"deepspeed", "-f"},
};

constexpr std::string_view kAxolotlKeys[] = {"base_model",
                                             "micro_batch_size",
                                             "sequence_len",
                                             "sample_packing",
                                             "datasets",
                                             "val_set_size",
                                             "adapter",
                                             "lora_r",
                                             "lora_alpha",
                                             "load_in_8bit",
                                             "load_in_4bit",
                                             "dataset_prepared_path",
                                             "flash_attention",
                                             "num_epochs",
                                             "special_tokens",
                                             "strict",
                                             "wandb_project",
                                             "pad_to_sequence_len",
                                             "train_on_inputs",
                                             "lr_scheduler",
                                             "learning_rate",
                                             "output_dir",
                                             "gradient_checkpointing",
                                             "evals_per_epoch",
                                             "saves_per_epoch",
                                             "chat_template",
                                             "plugins",
                                             "warmup_ratio",
                                             "warmup_steps",
                                             "logging_steps",
                                             "deepspeed",
                                             "fsdp"};
constexpr SameThing kAxolotlSame[] = {
    {"micro_batch_size", "--micro-batch"},
    {"gradient_accumulation_steps", "--grad-accum"},
    {"sequence_len", "--seq"},
    {"deepspeed", "-f"},
};

constexpr std::string_view kTitanKeys[] = {"[job]",        "[profiling]",
                                           "[metrics]",    "[model]",
                                           "[optimizer]",  "[lr_scheduler]",
                                           "[training]",   "[parallelism]",
                                           "[checkpoint]", "[activation_checkpoint]",
                                           "[float8]",     "[quantize.linear.float8]",
                                           "[validation]", "[comm]"};
constexpr SameThing kTitanSame[] = {
    {"local_batch_size", "--micro-batch"},   {"batch_size", "--micro-batch"},
    {"global_batch_size", "--global-batch"}, {"seq_len", "--seq"},
    {"tensor_parallel_degree", "--tp"},
};

constexpr std::string_view kMegatronKeys[] = {"num_layers",
                                              "hidden_size",
                                              "ffn_hidden_size",
                                              "num_attention_heads",
                                              "seq_length",
                                              "max_position_embeddings",
                                              "micro_batch_size",
                                              "global_batch_size",
                                              "tensor_model_parallel_size",
                                              "pipeline_model_parallel_size",
                                              "context_parallel_size",
                                              "train_iters",
                                              "lr_decay_iters",
                                              "lr_decay_style",
                                              "use_distributed_optimizer",
                                              "recompute_granularity",
                                              "recompute_activations",
                                              "swiglu",
                                              "group_query_attention",
                                              "num_query_groups",
                                              "untie_embeddings_and_output_weights",
                                              "position_embedding_type",
                                              "normalization",
                                              "vocab_file",
                                              "merge_file",
                                              "tokenizer_type",
                                              "data_path",
                                              "sequence_parallel",
                                              "use_mcore_models",
                                              "clip_grad",
                                              "min_lr",
                                              "padded_vocab_size"};
constexpr SameThing kMegatronSame[] = {
    {"tensor_model_parallel_size", "--tp"},
    {"micro_batch_size", "--micro-batch"},
    {"global_batch_size", "--global-batch"},
    {"seq_length", "--seq"},
    {"num_layers", "layers="},
    {"hidden_size", "hidden="},
    {"num_attention_heads", "heads="},
    {"ffn_hidden_size", "ffn="},
    {"num_query_groups", "kv_heads="},
};

constexpr std::string_view kConfigKeys[] = {
    "model_type",   "architectures",      "transformers_version", "torch_dtype",
    "vocab_size",   "hidden_act",         "num_hidden_layers",    "intermediate_size",
    "rms_norm_eps", "initializer_range",  "tie_word_embeddings",  "bos_token_id",
    "eos_token_id", "num_key_value_heads"};

constexpr std::array kKinds = {
    ForeignKind{"the configuration of GPT-NeoX", kNeoxKeys, kNeoxSame},
    ForeignKind{"the configuration of llm-foundry", kFoundryKeys, kFoundrySame},
    ForeignKind{"the arguments of Hugging Face's Trainer", kTrainerKeys, kTrainerSame},
    ForeignKind{"the configuration of LLaMA-Factory", kFactoryKeys, kFactorySame},
    ForeignKind{"the configuration of axolotl", kAxolotlKeys, kAxolotlSame},
    ForeignKind{"the configuration of torchtitan", kTitanKeys, kTitanSame},
    ForeignKind{"the arguments of Megatron-LM", kMegatronKeys, kMegatronSame},
    ForeignKind{"the config.json of a model, which is the MODEL argument", kConfigKeys, {}},
};

// What a file says, whatever its syntax.
struct Said {
  std::string key;
  int line = 0;
  std::string value;  // empty where it is not one word
};

std::string canonical(std::string_view key) {
  std::string result(key);
  std::replace(result.begin(), result.end(), '-', '_');
  return result;
}

bool holds(std::span<const std::string_view> keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

std::size_t count_of(std::span<const std::string_view> keys, const std::vector<Said>& said) {
  return static_cast<std::size_t>(
      std::count_if(said.begin(), said.end(), [&](const Said& one) { return holds(keys, one.key); }));
}

std::size_t plan_keys_in(const std::vector<Said>& said) {
  return static_cast<std::size_t>(std::count_if(said.begin(), said.end(), [](const Said& one) {
    const auto& keys = plan_keys();
    return one.key == "schema" || one.key == "hw" ||
           std::any_of(keys.begin(), keys.end(), [&](const PlanKey& key) { return key.name == one.key; });
  }));
}

// The kind with the most keys of its own; nullptr where no kind has enough.
const ForeignKind* kind_of(const std::vector<Said>& said) {
  const auto* const best = std::max_element(kKinds.begin(), kKinds.end(), [&](const auto& a, const auto& b) {
    return count_of(a.own_keys, said) < count_of(b.own_keys, said);
  });
  const std::size_t found = count_of(best->own_keys, said);
  return found >= kKeysToRecognise && found > plan_keys_in(said) ? best : nullptr;
}

std::string advice(const ForeignKind& kind, const std::vector<Said>& said) {
  std::vector<std::string> options;
  for (const SameThing& same : kind.same) {
    const auto found =
        std::find_if(said.begin(), said.end(), [&](const Said& one) { return one.key == same.key; });
    if (found == said.end()) continue;
    const std::string_view gap = same.option.ends_with('=') ? "" : " ";
    options.push_back(
        fmt::format("{}{}{} ({})", same.option, gap, found->value.empty() ? "N" : found->value, found->key));
  }
  if (kind.same.empty()) return "";
  if (options.empty())
    return "; say the plan with options (zeroplan fit --help) or a plan file (docs/plans.md)";
  return fmt::format("; options say the same: {}; stage, type and engine with --zero, --dtype and --engine",
                     fmt::join(options, ", "));
}

void refuse(const std::vector<Said>& said, const std::string& source) {
  const ForeignKind* kind = kind_of(said);
  if (kind == nullptr) return;
  std::vector<std::string> shown;
  int line = 0;
  for (const Said& one : said) {
    if (!holds(kind->own_keys, one.key)) continue;
    if (shown.empty()) line = one.line;
    if (shown.size() < kKeysShown) shown.push_back(one.key);
  }
  throw ConfigurationError(Problem{source, line, "",
                                   fmt::format("the file is {} (it has {}), which is not read as a plan{}",
                                               kind->title, fmt::join(shown, ", "), advice(*kind, said))});
}

std::vector<Said> said_by(const Value& root) {
  std::vector<Said> said;
  for (const Entry& entry : root.entries) {
    said.push_back({canonical(entry.key), entry.line,
                    entry.value.kind == Value::Kind::scalar ? quoted(entry.value.text) : std::string()});
    std::string& value = said.back().value;
    if (value.find(' ') == std::string::npos && value.size() > 2) value = value.substr(1, value.size() - 2);
  }
  return said;
}

bool is_word(char c) { return c > ' ' && c != '=' && c != '"' && c != '\'' && c != '\\' && c != '#'; }

std::string word_at(std::string_view text) {
  const auto end = std::find_if_not(text.begin(), text.end(), is_word);
  return std::string(text.begin(), end);
}

// "[section]" and "key = value" of a TOML line; every "--key value" of a shell's line.
void say_line(std::string_view text, int line, std::vector<Said>& said) {
  const std::size_t start = text.find_first_not_of(" \t");
  if (start == std::string_view::npos || text[start] == '#') return;
  text.remove_prefix(start);
  if (text.front() == '[') {
    said.push_back({std::string(text.substr(0, text.find(']') + 1)), line, ""});
  } else if (const std::string key = word_at(text); text.substr(key.size()).starts_with(" = ")) {
    said.push_back({key, line, word_at(text.substr(key.size() + 3))});
  }
  for (std::size_t at = text.find("--"); at != std::string_view::npos; at = text.find("--", at + 2)) {
    const std::string key = word_at(text.substr(at + 2));
    const std::size_t after = std::min(at + 3 + key.size(), text.size());
    const std::string value = word_at(text.substr(after));
    said.push_back({canonical(key), line, value.starts_with("--") ? "" : value});
    at += key.size();
  }
}

bool has_any(const Value& root, std::span<const std::string_view> keys) {
  return std::any_of(keys.begin(), keys.end(),
                     [&](std::string_view key) { return root.find(key) != nullptr; });
}

}  // namespace

void refuse_foreign_plan(const Document& document) { refuse(said_by(document.root), document.source); }

void refuse_foreign_text(std::string_view text, const std::string& source) {
  std::vector<Said> said;
  int line = 1;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    say_line(text.substr(0, end), line++, said);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  refuse(said, source);
}

void refuse_foreign_model(const Document& document) {
  constexpr std::array<std::string_view, 7> kPlans = {"zero_optimization",  "train_micro_batch_size_per_gpu",
                                                      "train_batch_size",   "distributed_type",
                                                      "fsdp_config",        "deepspeed_config",
                                                      "compute_environment"};
  const Value& root = document.root;
  if (root.find("model_type") != nullptr || root.find("schema") != nullptr) return;
  if (has_any(root, kPlans)) {
    throw ConfigurationError(
        Problem{document.source, 1, "",
                "the file is a plan (of DeepSpeed or accelerate), expected a model; give it "
                "with -f"});
  }
  refuse_foreign_plan(document);
}

}  // namespace zeroplan::describe
