#include "cli/command.hpp"
#include "cli/options.hpp"
#include "cli/output_file.hpp"
#include "cli/version.hpp"
#include "executor/machine/machine.hpp"
#include "planner/describe/machine/cluster.hpp"
#include "planner/error.hpp"
#include "reports/detected_report.hpp"
#include "reports/hardware_report.hpp"
#include "reports/writers.hpp"

namespace zeroplan::cli {
namespace {

Answer detect(const Request& request) {
  const FoundMachine machine = executor::find_machine();
  Answer answer{reports::detected_report(version(), machine), machine.gpus.empty() ? kNotPossible : kYes};
  const auto file = request.own.find("describe");
  if (file == request.own.end()) return answer;
  const reports::Data* description = answer.report.data.find("description");
  if (description->is_null()) {
    throw ConfigurationError(Problem{"--describe", 0, "",
                                     "there is no GPU here whose memory is known; zeroplan calibrate "
                                     "describes the processors"});
  }
  write_whole_file(file->second, reports::write_yaml(*description), "--describe");
  return answer;
}

}  // namespace

std::vector<OptionSpec> hw_options() {
  return {{{"--describe"},
           "describe",
           "FILE",
           "of detect: write what was read of this machine's GPUs as a file for --hw"}};
}

Answer hw(const Request& request) {
  const std::string action = action_argument(request, {"list", "show", "detect"});
  if (action == "detect") return detect(request);
  if (request.own.contains("describe")) {
    throw ConfigurationError(Problem{"--describe", 0, "", "belongs to hw detect"});
  }
  if (action == "list")
    return {reports::hardware_list_report(version(), describe::preset_hardware_names()), kYes};
  return {reports::hardware_report(version(), describe::resolve_cluster(machine_argument(request), {}, {})),
          kYes};
}

}  // namespace zeroplan::cli
