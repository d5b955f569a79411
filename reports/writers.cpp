#include "reports/writers.hpp"

namespace zeroplan::reports {

const std::vector<std::string>& format_names() {
  static const std::vector<std::string> names{"table", "json", "jsonl", "csv", "md", "yaml", "html"};
  return names;
}

std::string write(const Report& report, Format format) {
  switch (format) {
    case Format::table:
      return write_table(report.blocks);
    case Format::json:
      return write_json(report.data, false);
    case Format::jsonl:
      return write_json(report.data, true);
    case Format::csv:
      return write_csv(report.data, report.rows);
    case Format::md:
      return write_markdown(report.blocks);
    case Format::yaml:
      return write_yaml(report.data);
    case Format::html:
      return write_html(report.blocks);
  }
  return {};
}

}  // namespace zeroplan::reports
