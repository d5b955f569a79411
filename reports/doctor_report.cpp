#include "reports/doctor_report.hpp"

#include <fmt/format.h>

#include <string>

#include "reports/keyed_table.hpp"

namespace zeroplan::reports {
namespace {

std::string_view name_of(RunsOn device) { return device == RunsOn::cpu ? "cpu" : "cuda"; }

Data finding_data(const Finding& finding) {
  return Data::map()
      .set("key", finding.key)
      .set("what", finding.what)
      .set("state", reports::name_of(finding.state))
      .set("needed", finding.needed)
      .set("found", finding.found)
      .set("why", finding.why)
      .set("mend", finding.mend);
}

std::string verdict_text(RunsOn device, const std::vector<Finding>& findings) {
  const std::string_view where = device == RunsOn::cpu ? "this machine's processors" : "this machine's GPUs";
  if (suffices(findings)) return fmt::format("What is here suffices for a live run on {}.", where);
  std::string missing;
  for (const Finding& finding : findings) {
    if (!finding.needed || finding.state != FindingState::missing) continue;
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", finding.what);
  }
  return fmt::format("A live run on {} is not possible. Missing: {}.", where, missing);
}

}  // namespace

Report doctor_report(std::string_view version, RunsOn device, const std::vector<Finding>& findings) {
  Data rows = Data::list();
  for (const Finding& finding : findings) rows.add(finding_data(finding));
  Report report;
  report.data = Data::map()
                    .set("schema", "zeroplan.doctor/1")
                    .set("version", version)
                    .set("device", name_of(device))
                    .set("suffices", suffices(findings))
                    .set("findings", std::move(rows));
  report.rows = "findings";
  report.blocks.emplace_back(Paragraph{verdict_text(device, findings)});
  report.blocks.emplace_back(table_of(list_at(report.data, report.rows), {{{"state", false}, "state"},
                                                                          {{"what", false}, "what"},
                                                                          {{"needed", false}, "needed"},
                                                                          {{"found", false}, "found"}}));
  for (const Finding& finding : findings) {
    if (finding.state == FindingState::ok) continue;
    report.blocks.emplace_back(Paragraph{fmt::format("{}: {}.", finding.what, finding.why)});
    report.blocks.emplace_back(Commands{{finding.mend}});
  }
  return report;
}

}  // namespace zeroplan::reports
