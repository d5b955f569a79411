#pragma once

#include <string>
#include <string_view>

namespace zeroplan::describe {

// Something of a model's file that changes what is trained and that the step program leaves out.
struct LeftOut {
  std::string_view key;  // static
  std::string what;      // file, line and value, and what is planned instead
  bool changes_figures = false;
};

}  // namespace zeroplan::describe
