#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>

#include "planner/describe/plan/accelerate_config.hpp"
#include "planner/describe/plan/deepspeed_config.hpp"
#include "planner/describe/plan/plan.hpp"
#include "planner/describe/text/foreign_file.hpp"

namespace zeroplan::describe {
namespace {

constexpr std::string_view kSchema = "zeroplan.plan/1";

constexpr std::array<std::string_view, 4> kDeepSpeedKeys = {
    "zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", "gradient_accumulation_steps"};
constexpr std::array<std::string_view, 4> kAccelerateKeys = {"distributed_type", "fsdp_config",
                                                             "deepspeed_config", "compute_environment"};

bool has_any(const Value& root, std::span<const std::string_view> keys) {
  return std::any_of(keys.begin(), keys.end(),
                     [&](std::string_view key) { return root.find(key) != nullptr; });
}

bool is_json(const std::string& path, std::string_view text) {
  if (std::filesystem::path(path).extension() == ".json") return true;
  const auto first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '{';
}

}  // namespace

PlanFile read_plan_yaml(const Document& document) {
  Problems problems;
  MapReader map(document.root, document.source, "", problems);
  PlanFile file;
  file.format = "zeroplan";
  file.model = map.string("model");
  file.hardware = map.string("hw");
  if (const auto schema = map.string("schema"); schema && *schema != kSchema) {
    map.problem("schema", fmt::format("found {}, expected {}", zeroplan::quoted(*schema), kSchema));
  }
  for (const Entry& entry : document.root.entries) {
    if (entry.key == "model" || entry.key == "hw" || entry.key == "schema") continue;
    Problems wrong;
    PlanOptions one;
    Value value = entry.value;
    value.line = entry.line;
    set_plan_option(one, entry.key, value, document.source, wrong);
    for (const Problem& problem : wrong.list()) problems.add(problem);
    for (const auto& [key, origin] : one.origins) {
      if (const auto before = file.options.origins.find(key); before != file.options.origins.end()) {
        problems.add({document.source, entry.line, entry.key,
                      fmt::format("the same as {} in line {}, expected one of them", before->second.key,
                                  before->second.line)});
      }
    }
    file.options = merge(file.options, one);
  }
  problems.throw_if_any();
  return file;
}

PlanFile read_plan_document(const Document& document) {
  const Value& root = document.root;
  refuse_foreign_plan(document);
  if (has_any(root, kAccelerateKeys)) return read_accelerate_config(document);
  if (has_any(root, kDeepSpeedKeys)) return read_deepspeed_config(document).file;
  return read_plan_yaml(document);
}

namespace {

// DeepSpeed reads its files as Hjson. Of what that allows beyond JSON, YAML's maps in braces take comments
// behind '#', a comma at the end and keys without quotes.
Document parse_json_or_hjson(const std::string& text, const std::string& path) {
  try {
    return parse_json(text, path);
  } catch (const ConfigurationError& not_json) {
    std::optional<Document> document;
    try {
      document = parse_yaml(text, path);
    } catch (const ConfigurationError&) {
      throw not_json;
    }
    const Value& root = document->root;
    if (root.kind != Value::Kind::map || !has_any(root, kDeepSpeedKeys)) throw;
    return std::move(*document);
  }
}

}  // namespace

PlanFile read_plan_file(const std::string& path) {
  const std::string text = read_text_file(path);
  if (is_json(path, text)) return read_plan_document(parse_json_or_hjson(text, path));
  refuse_foreign_text(text, path);
  return read_plan_document(parse_yaml(text, path));
}

}  // namespace zeroplan::describe
