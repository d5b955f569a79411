#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "planner/describe/model/check_model.hpp"
#include "planner/describe/model/huggingface_families.hpp"

namespace zeroplan::describe {
namespace {

constexpr std::int64_t kDefaultLabels = 2;  // of transformers' PretrainedConfig
constexpr std::int64_t kMaxLabels = 1'000'000;

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

std::int64_t labels(MapReader& config) {
  const Value* names = config.map("id2label");
  if (names != nullptr && !names->entries.empty()) return static_cast<std::int64_t>(names->entries.size());
  return config.integer("num_labels", 1, kMaxLabels).value_or(kDefaultLabels);
}

// A linear layer from the last hidden state to a score per label takes the place of the output head, at every token.
void use_label_head(MapReader& config, Model& model, bool bias) {
  model.head_outputs = labels(config);
  model.tied_embeddings = false;
  model.head_bias = bias;
  model.notes.push_back(
      note_at(config, "architectures",
              fmt::format("the head has {} instead of a vocabulary; its loss is counted as a "
                          "cross-entropy at every token",
                          model.head_outputs == 1 ? "one score"
                                                  : fmt::format("scores of {} labels", model.head_outputs))));
}

}  // namespace

void read_architecture(MapReader& config, std::string_view prefixes, Model& model) {
  const Value* list = config.list("architectures");
  if (list == nullptr || list->items.empty()) return;
  const std::string found = list->items.front().text;
  const std::string name = lower(found);
  std::string first(prefixes.substr(0, prefixes.find(' ')));
  for (std::string_view rest = prefixes; !rest.empty();) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    const std::string prefix = lower(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!name.starts_with(prefix)) continue;
    const std::string head = name.substr(prefix.size());
    if (head == "forcausallm" || head == "lmheadmodel" || head == "forconditionalgeneration") return;
    const bool is_decoder = model.architecture == Architecture::decoder;
    if (head == "forsequenceclassification" && is_decoder) return use_label_head(config, model, false);
    if (head == "fortokenclassification" && is_decoder) return use_label_head(config, model, true);
    if (head == "model" || head == "textmodel") {
      config.problem(
          "architectures",
          fmt::format("found {}, which has no output head, so there is no loss to plan for; expected "
                      "{}ForCausalLM",
                      quoted(found), first));
      return;
    }
  }
  config.problem("architectures",
                 fmt::format("found {}, which is another network than its model_type says and is not "
                             "modelled; expected {}ForCausalLM, {}ForSequenceClassification or "
                             "{}ForTokenClassification",
                             quoted(found), first, first, first));
}

}  // namespace zeroplan::describe
