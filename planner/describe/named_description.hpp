#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/describe/document.hpp"
#include "planner/describe/embedded.hpp"
#include "planner/describe/not_modelled.hpp"

// Looking up a shipped description by what a user types: what optimizers and engines have in common.
namespace zeroplan::describe {

// The text of the description with that name or alias, in any case, with or without '-' and '_'. `option`
// names the argument in the problem ("--optimizer"). Throws ConfigurationError: what is known of the name
// although it is not modelled, or the nearest name.
const EmbeddedFile& find_named(std::span<const EmbeddedFile> files, std::string_view name,
                               const std::string& option, Vocabulary vocabulary);

std::vector<std::string> names_of(std::span<const EmbeddedFile> files);

// What a shipped description says, parsed once in a process. Any thread may ask.
const Document& document_of(const EmbeddedFile& file);

// Enters a problem where `schema` is missing or another one.
void check_schema(MapReader& map, std::string_view expected);

}  // namespace zeroplan::describe
