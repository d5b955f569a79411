#include <fmt/format.h>

#include <algorithm>

#include "cli/options.hpp"

namespace zeroplan::cli {
namespace {

void refuse_more(const Request& request, std::size_t expected) {
  if (request.arguments.size() <= expected) return;
  throw ConfigurationError(
      Problem{"", 0, "", "unexpected argument " + zeroplan::quoted(request.arguments[expected])});
}

}  // namespace

std::string model_argument(const Request& request, std::size_t index) {
  refuse_more(request, index + 1);
  if (request.arguments.size() > index) return request.arguments[index];
  if (!request.model.empty()) return request.model;
  throw ConfigurationError(
      Problem{"MODEL", 0, "",
              "missing; expected a preset (zeroplan models list), a config.json, a model file, "
              "params=7.5B or a shape such as layers=48,hidden=1600,heads=25,vocab=50257"});
}

std::string machine_argument(const Request& request) {
  refuse_more(request, 2);
  if (request.arguments.size() == 2) return request.arguments[1];
  throw ConfigurationError(Problem{
      "MACHINE", 0, "", "missing; expected a machine (zeroplan hw list) or a YAML file, such as v100-32gb"});
}

std::string action_argument(const Request& request, const std::vector<std::string>& actions) {
  const std::string expected = fmt::format("expected one of {}", fmt::join(actions, ", "));
  if (request.arguments.empty())
    throw ConfigurationError(Problem{"", 0, "", "an action is missing; " + expected});
  const std::string& action = request.arguments.front();
  if (std::find(actions.begin(), actions.end(), action) == actions.end()) {
    const std::string nearest = nearest_name(action, actions);
    throw ConfigurationError(Problem{"", 0, "",
                                     fmt::format("unknown action {}, {}{}", zeroplan::quoted(action),
                                                 expected, nearest.empty() ? "" : "; nearest: " + nearest)});
  }
  if (action == "list" || action == "detect") refuse_more(request, 1);
  return action;
}

const std::string& hardware_argument(const Request& request) {
  if (!request.hardware.empty()) return request.hardware;
  throw ConfigurationError(Problem{
      "--hw", 0, "", "missing; expected a machine (zeroplan hw list) or a YAML file, such as v100-32gb"});
}

}  // namespace zeroplan::cli
