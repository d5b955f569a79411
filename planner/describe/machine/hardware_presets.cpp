#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "planner/describe/machine/hardware_reader.hpp"

namespace zeroplan::describe {
namespace {

constexpr std::array<std::string_view, 3> kKinds{"device", "node", "cluster"};

// The value of `key: value` among the first lines of a shipped file. These lines have a fixed, plain form
// (docs/hardware.md; a test reads every file both ways), so a name is found without parsing fifty files.
std::string_view heading_line(std::string_view text, std::string_view key) {
  while (!text.empty() && text.front() != '\n') {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(key) && line.substr(key.size()).starts_with(": ")) {
      return line.substr(key.size() + 2);
    }
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return {};
}

std::string_view unquoted(std::string_view text) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') return text.substr(1, text.size() - 2);
  return text;
}

template <class Visit>
void for_each_alias(std::string_view text, Visit visit) {
  std::string_view list = heading_line(text, "aliases");
  if (list.size() < 2) return;
  list = list.substr(1, list.size() - 2);
  while (!list.empty()) {
    const std::string_view alias = list.substr(0, list.find(", "));
    visit(unquoted(alias));
    list.remove_prefix(std::min(list.size(), alias.size() + 2));
  }
}

// People write rtx4090, RTX-4090 and rtx_4090.
bool is_separator(char c) { return c == '-' || c == '_' || c == '.'; }

bool same_name(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  std::size_t i = 0;
  std::size_t j = 0;
  while (true) {
    while (i < a.size() && is_separator(a[i])) ++i;
    while (j < b.size() && is_separator(b[j])) ++j;
    if (i == a.size() || j == b.size()) return i == a.size() && j == b.size();
    if (lower(a[i++]) != lower(b[j++])) return false;
  }
}

HardwareName::Kind kind_of(const EmbeddedFile& file) {
  const auto* found = std::find(kKinds.begin(), kKinds.end(), heading_line(file.text, "kind"));
  return static_cast<HardwareName::Kind>(found - kKinds.begin());
}

bool has_alias(const EmbeddedFile& file, std::string_view name) {
  bool found = false;
  for_each_alias(file.text, [&](std::string_view alias) { found = found || same_name(alias, name); });
  return found;
}

}  // namespace

const EmbeddedFile* find_preset(std::string_view name) {
  for (const EmbeddedFile& file : embedded_hardware()) {
    if (same_name(file.name, name)) return &file;
  }
  for (const EmbeddedFile& file : embedded_hardware()) {
    if (has_alias(file, name)) return &file;
  }
  return nullptr;
}

const EmbeddedFile* find_preset(std::string_view name, HardwareName::Kind kind) {
  const EmbeddedFile* file = find_preset(name);
  return file != nullptr && kind_of(*file) == kind ? file : nullptr;
}

std::string unknown_preset(std::string_view name, std::initializer_list<HardwareName::Kind> kinds,
                           std::string_view expected) {
  std::vector<std::string> candidates;
  for (const HardwareName& preset : preset_hardware_names()) {
    if (std::find(kinds.begin(), kinds.end(), preset.kind) == kinds.end()) continue;
    candidates.push_back(preset.name);
    candidates.insert(candidates.end(), preset.aliases.begin(), preset.aliases.end());
  }
  std::string message = fmt::format("found {}, expected {}", quoted(name), expected);
  if (const std::string nearest = nearest_name(name, candidates); !nearest.empty()) {
    message += "; nearest: " + nearest;
  }
  return message;
}

std::vector<HardwareName> preset_hardware_names() {
  std::vector<HardwareName> names;
  names.reserve(embedded_hardware().size());
  for (const EmbeddedFile& file : embedded_hardware()) {
    HardwareName name{
        std::string(file.name), kind_of(file), std::string(unquoted(heading_line(file.text, "title"))), {}};
    for_each_alias(file.text, [&](std::string_view alias) { name.aliases.emplace_back(alias); });
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace zeroplan::describe
