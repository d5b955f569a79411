#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "planner/describe/model/model.hpp"
#include "planner/describe/text/embedded.hpp"
#include "planner/describe/text/foreign_file.hpp"
#include "planner/describe/text/named_description.hpp"

namespace zeroplan::describe {

namespace {

constexpr std::string_view kWaysToAModel =
    "zeroplan models list has those that are shipped; any other by its config.json or the folder of it, a "
    "model file, a shape (layers=..,hidden=..,heads=..,vocab=..), or params=7.5B";

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& letter : result) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return result;
}

// The Hugging Face id that a preset's text states. Read from the text, because reading all presets to find
// one would take longer than everything else that a command does.
std::string_view huggingface_id(std::string_view text) {
  constexpr std::string_view kKey = "\nhuggingface_id: ";
  const std::size_t start = text.find(kKey);
  if (start == std::string_view::npos) return {};
  text.remove_prefix(start + kKey.size());
  return text.substr(0, text.find('\n'));
}

const EmbeddedFile* find_preset(std::string_view name) {
  if (name.empty()) return nullptr;
  const std::string wanted = lower(name);
  for (const EmbeddedFile& file : embedded_models()) {
    if (lower(file.name) == wanted || lower(huggingface_id(file.text)) == wanted) return &file;
  }
  return nullptr;
}

Model read_preset(const EmbeddedFile& file) { return read_model_yaml(document_of(file)); }

Model read_file(const std::string& path) {
  const std::string extension = lower(std::filesystem::path(path).extension().string());
  if (extension == ".json") {
    const Document document = parse_json(read_text_file(path), path);
    refuse_foreign_model(document);
    return read_huggingface_config(document);
  }
  if (extension == ".yaml" || extension == ".yml") {
    const Document document = parse_yaml(read_text_file(path), path);
    refuse_foreign_model(document);
    return read_model_yaml(document);
  }
  throw ConfigurationError(
      Problem{path, 0, "",
              "expected a .json file (a Hugging Face config.json) or a .yaml file (a model description)"});
}

bool is_folder(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

bool looks_like_a_path(std::string_view argument) {
  const std::string text = lower(argument);
  return text.starts_with('/') || text.starts_with('.') || text.ends_with(".json") ||
         text.ends_with(".yaml") || text.ends_with(".yml");
}

[[noreturn]] void fail(const std::string& argument) {
  if (looks_like_a_path(argument))
    throw ConfigurationError(Problem{argument, 0, "", "no such file or folder"});
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_models()) {
    names.emplace_back(file.name);
    if (const std::string_view id = huggingface_id(file.text); !id.empty()) names.emplace_back(id);
  }
  const std::string nearest = nearest_name(argument, names);
  throw ConfigurationError(
      Problem{"MODEL", 0, "",
              fmt::format("no model {}; {}{}", zeroplan::quoted(argument),
                          nearest.empty() ? "" : "nearest: " + nearest + "; ", kWaysToAModel)});
}

}  // namespace

Model resolve_model(const std::string& argument) {
  const bool is_path = !argument.empty() && argument.find('\0') == std::string::npos && is_there(argument);
  if (!is_path && argument.find('=') != std::string::npos) return read_model_spelling(argument);
  const EmbeddedFile* preset = find_preset(argument);
  if (is_path && is_folder(argument)) {
    const std::filesystem::path config = std::filesystem::path(argument) / "config.json";
    // A folder that only happens to have a preset's name does not hide the preset.
    if (preset == nullptr || is_there(config)) return read_file(config.string());
  } else if (is_path) {
    return read_file(argument);
  }
  if (preset == nullptr) fail(argument);
  return read_preset(*preset);
}

std::vector<std::string> preset_model_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_models()) names.emplace_back(file.name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace zeroplan::describe
