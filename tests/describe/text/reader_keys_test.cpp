#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "planner/describe/model/huggingface_keys.hpp"
#include "planner/describe/plan/accelerate_config.hpp"
#include "planner/describe/plan/accelerate_keys.hpp"
#include "planner/describe/plan/deepspeed_config.hpp"
#include "planner/describe/plan/deepspeed_keys.hpp"
#include "reports/model_data.hpp"
#include "reports/writers.hpp"
#include "tests/describe/plan/plan_support.hpp"
#include "tests/describe/text/csv_table.hpp"

using namespace zeroplan;
using namespace zeroplan::describe;
using nlohmann::json;
using zeroplan::testing::contains;
using zeroplan::testing::problems_of;

// No key of a file vanishes: each is used, noted, refused, or declared to have no effect. The keys are those
// that the packages themselves declare (tests/reference/readers/extract_keys.py).
namespace {

// What reading a file comes to.
struct Outcome {
  std::string result;    // everything that was read, as text; empty where the file was refused
  std::string messages;  // notes and problems

  bool operator==(const Outcome&) const = default;
};

template <class T>
std::string shown(const std::optional<T>& value) {
  if (!value) return "-";
  if constexpr (std::is_enum_v<T>) {
    return std::to_string(static_cast<int>(*value));
  } else {
    return fmt::format("{}", *value);
  }
}

std::string signature(const PlanOptions& o) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}",
                     shown(o.gpus), shown(o.nodes), shown(o.dp), shown(o.tp), shown(o.zero),
                     shown(o.micro_batch), shown(o.grad_accum), shown(o.global_batch), shown(o.seq),
                     shown(o.checkpoint_interval), shown(o.dtype), shown(o.optimizer), shown(o.engine),
                     shown(o.recompute), shown(o.attention), shown(o.offload), shown(o.dropout),
                     shown(o.partition_activations), shown(o.offload_activations), shown(o.constant_buffers),
                     shown(o.contiguous_memory), shown(o.overlap), shown(o.bucket), shown(o.reserve),
                     shown(o.bucket_elements), o.bucket_from_hidden, o.partition_where_possible);
}

template <class Read>
Outcome outcome_of(const Read& read) {
  Outcome outcome;
  const std::string problems = problems_of([&] { read(outcome); });
  outcome.messages += problems;
  return outcome;
}

Outcome read_plan(const json& file, bool is_deepspeed) {
  return outcome_of([&](Outcome& outcome) {
    const Document document = parse_json(file.dump(), "file.json");
    const PlanFile plan =
        is_deepspeed ? read_deepspeed_config(document).file : read_accelerate_config(document);
    outcome.result = signature(plan.options);
    for (const std::string& note : plan.options.notes) outcome.messages += note + '\n';
  });
}

Outcome read_model(const json& file) {
  Outcome outcome;
  std::string notes;
  outcome.messages = problems_of([&] {
    Model model = read_huggingface_config(parse_json(file.dump(), "config.json"));
    for (const std::string& note : model.notes) notes += note + '\n';
    for (const LeftOut& left : model.left_out) notes += left.what + '\n';
    model.notes.clear();
    outcome.result = reports::write_json(reports::model_data(model, 1024), true);
  });
  outcome.messages += notes;
  return outcome;
}

const std::vector<std::map<std::string, std::string>>& declared_keys() {
  static const auto rows = testing::read_csv(ZEROPLAN_TEST_DATA "/readers/keys.csv");
  return rows;
}

// Values of every kind that a key may hold; the last ones are what single keys ask for.
const std::vector<json>& values() {
  static const std::vector<json> all = {true,
                                        false,
                                        3,
                                        64,
                                        2,
                                        1,
                                        0,
                                        0.5,
                                        12345.0,
                                        "cpu",
                                        "some_word",
                                        json::array({3, 1}),
                                        json{{"enabled", true}},
                                        json{{"device", "cpu"}},
                                        json{{"type", "SGD"}},
                                        json{{"stage", 2}},
                                        json{{"autotp_size", 2}},
                                        json{{"partition_activations", true}},
                                        json{{"zero_stage", 1}},
                                        json{{"fsdp_version", 2}},
                                        json{{"fsdp_offload_params", true}},
                                        json{{"some", "map"}},
                                        "SGD",
                                        "HYBRID_SHARD",
                                        "NO_WRAP",
                                        "fp16",
                                        "MULTI_GPU",
                                        "gelu",
                                        "relu",
                                        "gated-silu",
                                        json::array({"LlamaModel"}),
                                        json::array({"mamba"}),
                                        json{{"parallelism_config_tp_size", 2}},
                                        json{{"momentum", 0.9}},
                                        json{{"dtype", "fp32"}},
                                        json{{"alibi", false}},
                                        json{{"params", {{"amsgrad", true}}}},
                                        json{{"grad_accum_dtype", "fp16"}},
                                        json{{"stages", 4}}};
  return all;
}

Value as_value(const json& value) {
  return parse_json(json{{"key", value}}.dump(), "").root.entries.front().value;
}

// `file` with `value` at the dotted `section`.
json with(json file, const std::string& section, const std::string& key, const json& value) {
  json* at = &file;
  for (std::size_t start = 0; start < section.size();) {
    const std::size_t end = std::min(section.find('.', start), section.size());
    at = &(*at)[section.substr(start, end - start)];
    start = end + 1;
  }
  (*at)[key] = value;
  return file;
}

std::string dotted(const std::string& section, const std::string& key) {
  return section.empty() ? key : section + '.' + key;
}

// Whether a message is about this key.
bool names(const std::string& messages, const std::string& path) {
  return contains(messages, ": " + path + ": ");
}

// Holds one key of a table against what the reader does with it.
template <class Read>
void check_key(const KnownKey& known, const std::string& section, const json& base, const Read& read) {
  const std::string key(known.name);
  const std::string path = dotted(section, key);
  CAPTURE(path);
  const Outcome without = read(base);
  REQUIRE_FALSE(without.result.empty());
  bool answered = false;
  for (const json& value : values()) {
    const bool neutral = is_neutral(as_value(value), known.neutral);
    const Outcome found = read(with(base, section, key, value));
    CAPTURE(value.dump());
    CAPTURE(found.messages);
    switch (known.kind) {
      case KeyClass::used:
        answered = answered || found.result != without.result || names(found.messages, path);
        break;
      case KeyClass::harmless:
        CHECK(found == without);
        answered = true;
        break;
      case KeyClass::not_modelled:
      case KeyClass::left_out:
      case KeyClass::left_out_of_figures:
        if (neutral) break;
        CHECK(names(found.messages, path));
        answered = true;
        break;
      case KeyClass::refused:
        if (neutral) break;
        CHECK(names(found.messages, path));
        CHECK(found.result.empty());
        answered = true;
        break;
    }
  }
  CHECK(answered);
}

json deepspeed_base(const std::string& section) {
  json base = {{"train_micro_batch_size_per_gpu", 5}, {"zero_optimization", {{"stage", 3}}}};
  if (section == "zero_optimization.offload_param") {
    base["zero_optimization"]["offload_optimizer"] = {{"device", "cpu"}};
    base["zero_optimization"]["offload_param"] = json::object();
  }
  if (section == "activation_checkpointing") base["activation_checkpointing"] = json::object();
  if (section == "optimizer.params") base["optimizer"] = {{"type", "SGD"}};
  return base;
}

json accelerate_base(const std::string& section) {
  json base = {
      {"distributed_type", "FSDP"},
      {"fsdp_config",
       {{"fsdp_sharding_strategy", "FULL_SHARD"}, {"fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"}}}};
  if (section == "deepspeed_config") {
    base = {{"distributed_type", "DEEPSPEED"},
            {"deepspeed_config", {{"zero_stage", 3}, {"offload_optimizer_device", "cpu"}}}};
  }
  return base;
}

// The smallest file of each family: the sizes that every published file states.
json family_base(const std::string& type) {
  json base = {{"model_type", type},       {"hidden_size", 64},
               {"num_hidden_layers", 4},   {"num_attention_heads", 8},
               {"num_key_value_heads", 8}, {"vocab_size", 1000},
               {"intermediate_size", 256}, {"max_position_embeddings", 512}};
  const auto add = [&](const json& more) { base.update(more); };
  if (type == "gpt2" || type == "gpt_bigcode" || type == "gptj" || type == "codegen") {
    base = {{"model_type", type}, {"n_embd", 64}, {"n_layer", 4}, {"n_head", 8}, {"vocab_size", 1000}};
  } else if (type == "gpt_neo") {
    base = {
        {"model_type", type}, {"hidden_size", 64}, {"num_layers", 4}, {"num_heads", 8}, {"vocab_size", 1000}};
  } else if (type == "opt") {
    add({{"ffn_dim", 256}});
  } else if (type == "bloom") {
    base = {{"model_type", type}, {"hidden_size", 64}, {"n_layer", 4}, {"n_head", 8}, {"vocab_size", 1000}};
    base["num_attention_heads"] = 8;
  } else if (type == "mpt") {
    base = {{"model_type", type}, {"d_model", 64}, {"n_layers", 4}, {"n_heads", 8}, {"vocab_size", 1000}};
  } else if (type == "t5" || type == "mt5") {
    base = {{"model_type", type}, {"d_model", 64}, {"num_layers", 4},
            {"num_heads", 8},     {"d_ff", 256},   {"vocab_size", 1000}};
  } else if (type == "mixtral" || type == "gpt_oss") {
    add({{"num_local_experts", 8}, {"num_experts_per_tok", 2}});
  } else if (type == "llama4_text") {
    add({{"num_local_experts", 8}, {"interleave_moe_layer_step", 2}, {"intermediate_size_mlp", 128}});
  } else if (type == "qwen2_moe" || type == "qwen3_moe") {
    add({{"num_experts", 8}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 64}});
    if (type == "qwen2_moe") add({{"shared_expert_intermediate_size", 128}});
  } else if (type.starts_with("deepseek") || type == "glm4_moe") {
    add({{"n_routed_experts", 8},
         {"num_experts_per_tok", 2},
         {"moe_intermediate_size", 64},
         {"first_k_dense_replace", 1}});
  }
  if (type.starts_with("qwen")) add({{"use_sliding_window", true}});
  return base;
}

bool is_harmless(std::span<const KnownKey> table, const std::string& key) {
  return std::any_of(table.begin(), table.end(), [&](const KnownKey& known) {
    return known.name == key && known.kind == KeyClass::harmless;
  });
}

bool is_neutral_there(std::span<const KnownKey> table, const std::string& key, const json& value) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const KnownKey& known) { return known.name == key; });
  return found != table.end() && found->kind != KeyClass::used && is_neutral(as_value(value), found->neutral);
}

// A key that could stand in the file with any value and never be seen in the answer.
template <class Read>
bool is_silent(std::span<const KnownKey> table, const json& file, const std::string& section,
               const std::string& key, const json& value, const Outcome& outcome, const Read& read) {
  if (names(outcome.messages, dotted(section, key)) || is_harmless(table, key) ||
      is_neutral_there(table, key, value)) {
    return false;
  }
  const std::vector<json>& tried = values();
  return std::all_of(tried.begin(), tried.end(), [&](const json& other) {
    const Outcome changed = read(with(file, section, key, other));
    return changed.result == outcome.result && !names(changed.messages, dotted(section, key));
  });
}

json declared_default(const std::string& text) { return text.empty() ? json(nullptr) : json::parse(text); }

// A slip of the fingers: two letters swapped.
std::string misspelt(std::string key) {
  if (key.size() > 3) std::swap(key[1], key[2]);
  return key;
}

const std::vector<std::string>& families() {
  static const std::vector<std::string> all = [] {
    std::set<std::string> types;
    for (const auto& row : declared_keys()) {
      if (row.at("package") == "transformers") types.insert(row.at("section"));
    }
    return std::vector<std::string>(types.begin(), types.end());
  }();
  return all;
}

}  // namespace

TEST_CASE("every key that DeepSpeed and accelerate declare is in a table") {
  std::size_t found = 0;
  for (const auto& row : declared_keys()) {
    const std::string& package = row.at("package");
    if (package == "transformers") continue;
    const auto tables = package == "deepspeed" ? deepspeed_tables() : accelerate_tables();
    const auto table = std::find_if(tables.begin(), tables.end(),
                                    [&](const KeyTable& one) { return one.section == row.at("section"); });
    // A section without a table is answered as a whole by the key that holds it.
    if (table == tables.end()) continue;
    CAPTURE(row.at("section"));
    CAPTURE(row.at("key"));
    CHECK(std::any_of(table->keys.begin(), table->keys.end(),
                      [&](const KnownKey& known) { return known.name == row.at("key"); }));
    ++found;
  }
  CHECK(found >= 200);
}

TEST_CASE("every key of DeepSpeed's tables does what its class says") {
  for (const KeyTable& table : deepspeed_tables()) {
    const std::string section(table.section);
    const auto read = [](const json& file) { return read_plan(file, true); };
    for (const KnownKey& known : table.keys) check_key(known, section, deepspeed_base(section), read);
  }
}

TEST_CASE("every key of accelerate's tables does what its class says") {
  for (const KeyTable& table : accelerate_tables()) {
    const std::string section(table.section);
    const auto read = [](const json& file) { return read_plan(file, false); };
    for (const KnownKey& known : table.keys) check_key(known, section, accelerate_base(section), read);
  }
}

TEST_CASE("every key that transformers declares for a family is used, noted, refused or declared harmless") {
  REQUIRE(families().size() >= 30);
  std::size_t keys = 0;
  for (const std::string& type : families()) {
    const json base = family_base(type);
    CAPTURE(type);
    const Outcome outcome = read_model(base);
    CAPTURE(outcome.messages);
    REQUIRE_FALSE(outcome.result.empty());
    for (const auto& row : declared_keys()) {
      if (row.at("section") != type) continue;
      const std::string& key = row.at("key");
      CAPTURE(key);
      ++keys;
      const Outcome found = read_model(with(base, "", key, "some_word"));
      CHECK_FALSE(contains(found.messages, ": " + key + ": not known"));
      CHECK_FALSE(is_silent(huggingface_keys(), base, "", key, json("some_word"), outcome, read_model));
    }
  }
  CHECK(keys > 1000);
}

TEST_CASE(
    "every key of the table of config.json does what its class says, where the family does not read it") {
  const json base = family_base("llama");
  const Outcome without = read_model(base);
  std::size_t checked = 0;
  for (const KnownKey& known : huggingface_keys()) {
    const bool is_read = std::any_of(values().begin(), values().end(), [&](const json& value) {
      const std::string key(known.name);
      const Outcome found = read_model(with(base, "", key, value));
      return (!found.result.empty() && found.result != without.result) ||
             (names(found.messages, key) && !contains(found.messages, "not modelled"));
    });
    if (is_read || known.name == "id2label" || known.name == "num_labels") continue;  // those of a classifier
    check_key(known, "", base, read_model);
    ++checked;
  }
  CHECK(checked >= 100);
  json attention = family_base("mpt");
  attention["attn_config"] = json::object();
  for (const KnownKey& known : huggingface_attention_keys())
    check_key(known, "attn_config", attention, read_model);
}

TEST_CASE("200 files hold no silent key") {
  std::mt19937 random(20261130);
  std::size_t files = 0;
  std::size_t keys = 0;
  const auto check_file = [&](std::span<const KnownKey> table, json file, const json& base,
                              const std::string& section, const std::vector<std::string>& added,
                              const auto& read) {
    ++files;
    keys += added.size();
    CAPTURE(file.dump());
    // What is refused is put back as it was, until the rest can be read.
    std::set<std::string> left(added.begin(), added.end());
    const auto put_back = [&](const std::string& key) {
      json& map = section.empty() ? file : file[section];
      const json before = section.empty() ? base : base.value(section, json::object());
      if (before.contains(key)) {
        map[key] = before.at(key);
      } else {
        map.erase(key);
      }
      left.erase(key);
    };
    Outcome outcome = read(file);
    while (outcome.result.empty()) {
      REQUIRE_FALSE(left.empty());
      const auto named = std::find_if(left.begin(), left.end(), [&](const std::string& key) {
        return names(outcome.messages, dotted(section, key));
      });
      put_back(std::string(named == left.end() ? *left.begin() : *named));
      outcome = read(file);
    }
    CAPTURE(outcome.messages);
    for (const std::string& key : left) {
      CAPTURE(key);
      const json& value = section.empty() ? file.at(key) : file.at(section).at(key);
      CHECK_FALSE(is_silent(table, file, section, key, value, outcome, read));
    }
  };
  // Some declared keys of a section with one of the values, one of them misspelt.
  const auto generate = [&](const std::string& package, const std::string& section, const json& base,
                            std::span<const KnownKey> table, const auto& read) {
    std::vector<const std::map<std::string, std::string>*> rows;
    for (const auto& row : declared_keys()) {
      if (row.at("package") == package && row.at("section") == section) rows.push_back(&row);
    }
    REQUIRE_FALSE(rows.empty());
    json file = base;
    const std::string place = package == "transformers" ? "" : section;
    std::set<std::string> added;
    for (int i = 0; i < 5; ++i) {
      const auto& row = *rows[random() % rows.size()];
      if (row.at("key") == "model_type" || row.at("key") == "distributed_type") continue;
      const std::string key = i == 4 ? misspelt(row.at("key")) : row.at("key");
      const json value = random() % 2 == 0 ? declared_default(row.at("default")) : values()[random() % 12];
      file = with(file, place, key, value);
      added.insert(key);
    }
    check_file(table, file, base, place, {added.begin(), added.end()}, read);
  };
  const auto deepspeed = [](const json& file) { return read_plan(file, true); };
  const auto accelerate = [](const json& file) { return read_plan(file, false); };
  for (int i = 0; i < 20; ++i) {
    for (const char* section : {"", "zero_optimization", "fp16", "activation_checkpointing"}) {
      generate("deepspeed", section, deepspeed_base(section), deepspeed_keys(section), deepspeed);
    }
    for (const char* section : {"", "fsdp_config"}) {
      generate("accelerate", section, accelerate_base(section), accelerate_keys(section), accelerate);
    }
  }
  for (int i = 0; i < 2; ++i) {
    for (const std::string& type : families()) {
      generate("transformers", type, family_base(type), huggingface_keys(), read_model);
    }
  }
  for (const auto& entry : std::filesystem::directory_iterator(ZEROPLAN_TEST_DATA "/huggingface")) {
    const json file = json::parse(read_text_file(entry.path().string()));
    std::vector<std::string> all;
    for (const auto& [key, value] : file.items()) all.push_back(key);
    std::vector<KnownKey> table(huggingface_keys().begin(), huggingface_keys().end());
    table.insert(table.end(), huggingface_wrapper_keys().begin(), huggingface_wrapper_keys().end());
    check_file(table, file, file, "", all, read_model);
  }
  CHECK(files >= 200);
  CHECK(keys >= 1000);
}
