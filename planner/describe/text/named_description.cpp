#include "planner/describe/text/named_description.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

namespace zeroplan::describe {
namespace {

std::string comparable(std::string_view name) {
  std::string result;
  for (const char c : name) {
    if (c != '-' && c != '_') result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

std::vector<std::string> aliases_of(const EmbeddedFile& file) {
  const Document& document = document_of(file);
  const Value* aliases = document.root.find("aliases");
  std::vector<std::string> result;
  if (aliases == nullptr) return result;
  for (const Value& alias : aliases->items) result.push_back(alias.text);
  return result;
}

}  // namespace

const EmbeddedFile& find_named(std::span<const EmbeddedFile> files, std::string_view name,
                               const std::string& option, Vocabulary vocabulary) {
  const std::string wanted = comparable(name);
  for (const EmbeddedFile& file : files) {
    if (comparable(file.name) == wanted) return file;
  }
  std::vector<std::string> candidates = names_of(files);
  for (const EmbeddedFile& file : files) {
    for (std::string& alias : aliases_of(file)) {
      if (comparable(alias) == wanted) return file;
      candidates.push_back(std::move(alias));
    }
  }
  if (const std::string known = not_modelled(vocabulary, name); !known.empty()) {
    throw ConfigurationError(Problem{option, 0, "", fmt::format("found {}: {}", quoted(name), known)});
  }
  std::string message =
      fmt::format("found {}, expected one of {}", quoted(name), fmt::join(names_of(files), ", "));
  if (const std::string nearest = nearest_name(name, candidates); !nearest.empty()) {
    message += "; nearest: " + nearest;
  }
  throw ConfigurationError(Problem{option, 0, "", std::move(message)});
}

const Document& document_of(const EmbeddedFile& file) {
  return made_once<Document>(
      file, [](const EmbeddedFile& one) { return parse_yaml(one.text, std::string(one.path)); });
}

std::vector<std::string> names_of(std::span<const EmbeddedFile> files) {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : files) names.emplace_back(file.name);
  std::sort(names.begin(), names.end());
  return names;
}

void check_schema(MapReader& map, std::string_view expected) {
  if (!map.has("schema")) {
    map.missing("schema", expected);
    return;
  }
  const auto schema = map.string("schema");
  if (schema && *schema != expected) {
    map.problem("schema", fmt::format("found {}, expected {}", quoted(*schema), expected));
  }
}

}  // namespace zeroplan::describe
