#include "cli/ranks.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

namespace zeroplan::cli {

using executor::Launch;

void end_stalled(const std::string& report) {
  fmt::print(stderr, "zeroplan: error: {}\n", report);
  std::_Exit(kRunFailed);
}

std::function<void(const std::string& why)> teller_of(std::ostream* progress) {
  return [progress](const std::string& why) {
    if (progress != nullptr) *progress << "zeroplan: " << why << std::endl;
  };
}

Answer end_of_rank(const Request& request, const Launch& launch, const std::string& reason, int exit_code) {
  const bool alone = launch.kind == Launch::Kind::threads;
  teller_of(request.progress)(alone ? reason : fmt::format("rank {}: {}", launch.rank, reason));
  return Answer{{}, exit_code, true};
}

}  // namespace zeroplan::cli
