#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/describe/plan/plan.hpp"

// The part of resolve_plan that finds how many devices there are and how they are divided.
namespace zeroplan::describe {

// A plan on the way from options to values.
struct Resolution {
  static constexpr std::size_t kUsualAssumptions = 24;

  const PlanOptions& options;
  Plan plan;
  Problems problems;
  std::vector<Assumption> assumptions;
  std::vector<std::string> notes;  // those of the options, and further ones

  explicit Resolution(const PlanOptions& given) : options(given), notes(given.notes) {
    assumptions.reserve(kUsualAssumptions);
  }

  void assume(std::string_view key, std::string_view value, std::string reason);
  void assume(std::string_view key, std::int64_t value, std::string reason);
};

// Sets data_parallel and tensor_parallel and returns the machine with as many devices. What the user gave is
// fixed: gpus = dp x tp; without gpus it comes from nodes, else from dp x tp, else it is the whole node or
// cluster. Nothing is returned where the machine is not known or too small; problems say why.
std::optional<Cluster> resolve_degrees(Resolution& resolution, const std::string& hardware);

}  // namespace zeroplan::describe
