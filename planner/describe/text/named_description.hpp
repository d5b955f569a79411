#pragma once

#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/describe/text/document.hpp"
#include "planner/describe/text/embedded.hpp"
#include "planner/describe/text/not_modelled.hpp"

// Looking up a shipped description by what a user types: what optimizers and engines have in common.
namespace zeroplan::describe {

// The text of the description with that name or alias, in any case, with or without '-' and '_'. `option`
// names the argument in the problem ("--optimizer"). Throws ConfigurationError: what is known of the name
// although it is not modelled, or the nearest name.
const EmbeddedFile& find_named(std::span<const EmbeddedFile> files, std::string_view name,
                               const std::string& option, Vocabulary vocabulary);

std::vector<std::string> names_of(std::span<const EmbeddedFile> files);

// What `make` makes of a shipped description, once in a process; what it throws is thrown again each time. Any thread
// may ask, and `make` may ask for others.
template <class T, class Make>
const T& made_once(const EmbeddedFile& file, const Make& make) {
  static std::mutex mutex;
  static std::map<const EmbeddedFile*, T> known;
  {
    const std::lock_guard lock(mutex);
    const auto found = known.find(&file);
    if (found != known.end()) return found->second;
  }
  T value = make(file);
  const std::lock_guard lock(mutex);
  return known.emplace(&file, std::move(value)).first->second;
}

// Its text as a tree.
const Document& document_of(const EmbeddedFile& file);

// What `read` makes of that tree, once in a process.
template <class T>
const T& remembered(const EmbeddedFile& file, T (*read)(const Document&)) {
  return made_once<T>(file, [read](const EmbeddedFile& one) { return read(document_of(one)); });
}

// Enters a problem where `schema` is missing or another one.
void check_schema(MapReader& map, std::string_view expected);

}  // namespace zeroplan::describe
