#include "executor/communicator/exchange/transport.hpp"

#include <fmt/format.h>

namespace zeroplan::executor::exchange {

std::string activity_text(std::int64_t rank, const std::string& activity) {
  if (activity.empty()) return fmt::format("rank {} has not said what it does", rank);
  return fmt::format("rank {} was at: {}", rank, activity);
}

std::string missing_text(const std::vector<std::int64_t>& missing, std::chrono::milliseconds timeout,
                         const Call& call, std::int64_t own) {
  return fmt::format("{} did not come within {} s to {}, where rank {} waited", ranks_text(missing),
                     std::chrono::duration<double>(timeout).count(), text_of(call), own);
}

std::string out_of_step_text(std::int64_t own, const Call& call, std::int64_t other,
                             const std::string& theirs) {
  return fmt::format("ranks are out of step: rank {} is in {}; rank {} is in {}", own, text_of(call), other,
                     theirs);
}

}  // namespace zeroplan::executor::exchange
