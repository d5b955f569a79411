#pragma once

#include <string_view>

namespace zeroplan::cli {

// The version of the program, "0.1.0".
std::string_view version();

// The commit that it was built from, 12 hexadecimal digits, with "+changes" where the sources differed from it;
// "unknown" where they were in no git repository and -DZEROPLAN_COMMIT was not given.
std::string_view commit();

}  // namespace zeroplan::cli
