#include "tests/support/json_schema.hpp"

#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tests/support/process.hpp"

namespace zeroplan::test {
namespace {

// Debian's jsonschema belongs to Debian's Python.
const std::string kPython = "/usr/bin/python3";

}  // namespace

bool can_validate() {
  static const bool can = run_shell(kPython + " -W ignore -c 'import jsonschema'").exit_code == 0;
  return can;
}

std::vector<std::string> schema_violations(const std::vector<Document>& documents) {
  nlohmann::json list = nlohmann::json::array();
  for (const Document& one : documents) list.push_back({{"schema", one.schema}, {"document", one.document}});
  const TemporaryFolder folder;
  const std::string file = folder.file("documents.json");
  std::ofstream(file) << list;
  const CommandResult result =
      run_shell(kPython + " tests/tools/check_schemas.py docs/schema <'" + file + "'");
  if (result.exit_code != 0 && result.exit_code != 1) throw std::runtime_error(result.out + result.err);
  std::vector<std::string> violations;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) violations.push_back(line);
  return violations;
}

}  // namespace zeroplan::test
