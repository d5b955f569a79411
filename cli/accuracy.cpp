#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "cli/command.hpp"
#include "cli/version.hpp"
#include "planner/describe/text/document.hpp"
#include "planner/error.hpp"
#include "reports/accuracy_report.hpp"
#include "reports/command_line.hpp"

namespace zeroplan::cli {
namespace {

constexpr std::string_view kUsualQualities = "AB";

std::string qualities_of(const Request& request) {
  const auto given = request.own.find("quality");
  if (given == request.own.end()) return std::string(kUsualQualities);
  std::string letters = given->second;
  std::sort(letters.begin(), letters.end());
  const bool known = letters.find_first_not_of("ABC") == std::string::npos;
  if (letters.empty() || !known || std::adjacent_find(letters.begin(), letters.end()) != letters.end()) {
    throw ConfigurationError(Problem{
        "--quality", 0, "",
        fmt::format("found {}, expected letters among A, B and C, such as AB", quoted(given->second))});
  }
  return letters;
}

std::vector<accuracy::Run> runs_of(const std::vector<std::string>& files) {
  std::vector<accuracy::Run> runs;
  Problems problems;
  for (const std::string& file : files) {
    try {
      std::vector<accuracy::Run> more = accuracy::read_runs(describe::read_text_file(file), file);
      runs.insert(runs.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
    } catch (const ConfigurationError& error) {
      problems.add(error);
    }
  }
  problems.throw_if_any();
  return runs;
}

}  // namespace

std::vector<OptionSpec> accuracy_options() {
  return {{{"--quality"}, "quality", "LETTERS", "of the runs to score, among A, B and C (default AB)"}};
}

Answer accuracy(const Request& request) {
  if (request.arguments.empty()) {
    throw ConfigurationError(
        Problem{"FILE", 0, "", "missing; expected a CSV file with the columns of measured_runs.csv"});
  }
  const std::string qualities = qualities_of(request);
  const std::vector<accuracy::Run> runs = runs_of(request.arguments);
  std::string command = "zeroplan accuracy";
  for (const std::string& file : request.arguments) command += ' ' + reports::shell_word(file);
  if (qualities != kUsualQualities) command += " --quality " + qualities;
  const reports::AccuracyInputs inputs{std::move(command), request.arguments, qualities};
  return {reports::accuracy_report(version(), inputs, accuracy::score_runs(runs, qualities)), kYes};
}

}  // namespace zeroplan::cli
