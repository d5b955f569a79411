#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reports/report.hpp"

namespace zeroplan::reports {

enum class Format { table, json, jsonl, csv, md, yaml, html };

// In the order of the enumeration: what -o takes.
const std::vector<std::string>& format_names();

// The whole answer, ending with a newline.
std::string write(const Report& report, Format format);

// One writer per format. JSON: two spaces of indentation, or one line without blanks; bytes that are not UTF-8
// become U+FFFD, and numbers that are not finite become null. CSV: RFC 4180 with a header line; keys
// of nested maps are joined with dots, lists inside a row are left out.
std::string write_json(const Data& data, bool one_line);
std::string write_yaml(const Data& data);
std::string write_csv(const Data& data, std::string_view rows);
std::string write_table(const std::vector<Block>& blocks);
std::string write_markdown(const std::vector<Block>& blocks);
// One page that needs nothing else: a strict content security policy, no address outside it, tables that are complete
// without scripts, charts by the Vega that it carries.
std::string write_html(const std::vector<Block>& blocks);

// `text` in lines of at most `width` columns, broken at spaces. A word longer than a line stands on its own.
std::vector<std::string> wrapped_lines(std::string_view text, std::size_t width);

}  // namespace zeroplan::reports
