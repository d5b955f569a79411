#include "planner/describe/text/document.hpp"

#include <algorithm>

namespace zeroplan::describe {

const Value* Value::find(std::string_view key) const {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.key == key; });
  return found == entries.end() ? nullptr : &found->value;
}

}  // namespace zeroplan::describe
