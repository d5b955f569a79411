#include "cli/command.hpp"
#include "cli/run_device.hpp"
#include "cli/version.hpp"
#include "executor/launch.hpp"
#include "executor/machine/system.hpp"
#include "planner/error.hpp"
#include "reports/doctor_report.hpp"

namespace zeroplan::cli {

std::vector<OptionSpec> doctor_options() {
  return {{{"--device"},
           "device",
           "cpu|cuda",
           "what a live run needs on this (default: GPUs where the driver sees some, else cpu)"}};
}

Answer doctor(const Request& request) {
  const RunDevice device = read_run_device(request);
  for (const std::string& argument : request.arguments) {
    throw ConfigurationError(
        Problem{"", 0, "", "found " + zeroplan::quoted(argument) + ", expected options only"});
  }
  const FoundSystem system = executor::find_system(executor::environment_variable);
  reports::RunsOn runs_on = reports::device_of(system);
  if (device.said) {
    runs_on = device.kind == RunDevice::Kind::cpu ? reports::RunsOn::cpu : reports::RunsOn::cuda;
  }
  const std::vector<reports::Finding> findings = reports::findings_of(system, runs_on);
  return {reports::doctor_report(version(), runs_on, findings),
          reports::suffices(findings) ? kYes : kNotPossible};
}

}  // namespace zeroplan::cli
