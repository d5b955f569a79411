#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace zeroplan::test {

struct Document {
  std::string schema;  // "fit": docs/schema/fit.schema.json
  nlohmann::json document;
};

// Whether Debian's python3-jsonschema, which is no part of a build, is there. Without it nothing is validated.
bool can_validate();

// Returns what in the documents breaks their schemas, one line each with the number of the document and where in it, by
// python3-jsonschema (tests/tools/check_schemas.py). Throws std::runtime_error where it cannot run.
std::vector<std::string> schema_violations(const std::vector<Document>& documents);

}  // namespace zeroplan::test
