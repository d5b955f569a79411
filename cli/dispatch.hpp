#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace zeroplan::cli {

// The whole program: `words` are the arguments without the program's name. The answer goes to `out`,
// everything else to `err`. Returns the exit code and never throws for what a user can get wrong.
int run(const std::vector<std::string>& words, std::ostream& out, std::ostream& err);

}  // namespace zeroplan::cli
