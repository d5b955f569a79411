#include "cli/goal.hpp"

#include <limits>
#include <stdexcept>

#include "planner/describe/text/quantity.hpp"
#include "planner/error.hpp"

namespace zeroplan::cli {
namespace {

constexpr double kHighestPrice = 1e9;

template <class Value, class Parse>
void read(const Request& request, const char* key, std::optional<Value>& value, Problems& problems,
          const Parse& parse) {
  const auto found = request.own.find(key);
  if (found == request.own.end()) return;
  try {
    value = parse(found->second);
  } catch (const std::invalid_argument& error) {
    problems.add({std::string("--") + key, 0, "", error.what()});
  }
}

}  // namespace

std::vector<OptionSpec> goal_options() {
  return {{{"--tokens"}, "tokens", "N", "of the whole training, such as 300B: days, GPU-hours and cost"},
          {{"--price"}, "price", "X", "of one GPU-hour, in any currency: the training's cost in the same"}};
}

predict::TrainingGoal read_goal(const Request& request) {
  predict::TrainingGoal goal;
  Problems problems;
  read(request, "tokens", goal.tokens, problems, [](const std::string& text) {
    return describe::parse_count(text, 1, std::numeric_limits<std::int64_t>::max());
  });
  read(request, "price", goal.price_per_gpu_hour, problems,
       [](const std::string& text) { return describe::parse_real(text, 0, kHighestPrice); });
  problems.throw_if_any();
  return goal;
}

}  // namespace zeroplan::cli
