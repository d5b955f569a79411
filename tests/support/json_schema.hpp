#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace zeroplan::test {

// What in `value` breaks `schema`, one line each with a JSON pointer. Knows the part of JSON Schema (draft
// 2020-12) that our schemas use: type, enum, required, properties, additionalProperties (false), items,
// minimum, $ref (a schema beside it, "fit.schema.json#/properties/result"); annotations are skipped, any other keyword is a line of its own, so that a schema cannot say
// something that is not checked.
std::vector<std::string> schema_violations(const nlohmann::json& schema, const nlohmann::json& value,
                                           const std::string& pointer = "");

}  // namespace zeroplan::test
