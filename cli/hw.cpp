#include <thread>

#include "cli/command.hpp"
#include "cli/options.hpp"
#include "cli/version.hpp"
#include "planner/describe/machine/cluster.hpp"
#include "reports/hardware_report.hpp"

namespace zeroplan::cli {

Answer hw(const Request& request) {
  const std::string action = action_argument(request, {"list", "show", "detect"});
  if (action == "list")
    return {reports::hardware_list_report(version(), describe::preset_hardware_names()), kYes};
  if (action == "detect") {
    const describe::Cluster cluster = describe::resolve_cluster("cpu", {}, {});
    return {reports::detected_report(version(), cluster, std::thread::hardware_concurrency()), kYes};
  }
  return {reports::hardware_report(version(), describe::resolve_cluster(machine_argument(request), {}, {})),
          kYes};
}

}  // namespace zeroplan::cli
