#include "reports/findings.hpp"

#include <algorithm>

#include "reports/finding_lists.hpp"

namespace zeroplan::reports {

std::string_view name_of(FindingState state) {
  switch (state) {
    case FindingState::ok:
      return "ok";
    case FindingState::warning:
      return "warning";
    case FindingState::missing:
      break;
  }
  return "missing";
}

RunsOn device_of(const FoundSystem& system) {
  return system.machine.gpus.empty() ? RunsOn::cpu : RunsOn::cuda;
}

std::vector<Finding> findings_of(const FoundSystem& system, RunsOn device) {
  std::vector<Finding> findings;
  add_software_findings(system, device, findings);
  if (device == RunsOn::cuda || !system.machine.gpus.empty()) add_gpu_findings(system, device, findings);
  add_system_findings(system, device, findings);
  return findings;
}

bool suffices(const std::vector<Finding>& findings) {
  return std::none_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.needed && finding.state == FindingState::missing;
  });
}

}  // namespace zeroplan::reports
