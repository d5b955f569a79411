#include "cli/dispatch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "cli/command.hpp"
#include "cli/environment.hpp"
#include "cli/help.hpp"
#include "cli/options.hpp"
#include "cli/output_file.hpp"
#include "cli/version.hpp"
#include "planner/error.hpp"

namespace zeroplan::cli {
namespace {

const Command& find_command(const std::string& name) {
  const auto all = commands();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Command& command) { return command.name == name; });
  if (found != all.end()) return *found;
  std::vector<std::string> names;
  for (const Command& command : all) names.emplace_back(command.name);
  if (name.starts_with('-')) {
    names = {"--help", "--version"};
    const std::string nearest = nearest_name(name, names);
    throw ConfigurationError(Problem{name, 0, "",
                                     nearest.empty()
                                         ? "unknown option; a command comes first (zeroplan --help)"
                                         : "unknown option; nearest: " + nearest});
  }
  const std::string nearest = nearest_name(name, names);
  throw ConfigurationError(
      Problem{"", 0, "",
              fmt::format("unknown command {}, expected one of {}{}", zeroplan::quoted(name),
                          fmt::join(names, ", "), nearest.empty() ? "" : "; nearest: " + nearest)});
}

int answer(const std::vector<std::string>& words, std::ostream& out, std::ostream& err) {
  if (words.empty()) {
    err << short_help();
    return kBadInput;
  }
  const bool asks_for_help = words.front() == "--help" || words.front() == "-h" || words.front() == "help";
  if (asks_for_help) {
    out << (words.size() > 1 ? command_help(find_command(words[1])) : program_help());
    return kYes;
  }
  if (words.front() == "--version" || words.front() == "version") {
    out << "zeroplan " << version() << " (commit " << commit() << ", built with " << compiler_name() << ")\n";
    return kYes;
  }
  const Command& command = find_command(words.front());
  Problems problems;
  const GivenLine line = split_line(command, {words.begin() + 1, words.end()}, problems);
  if (line.help) {
    out << command_help(command);
    return kYes;
  }
  Request request = read_request(command, line, problems);
  request.words = words;
  if (!request.quiet) request.progress = &err;
  request.answers = &out;
  const Answer result = command.answer(request);
  if (request.quiet || result.is_silent) return result.exit_code;
  give_text(request, reports::write(result.report, request.format));
  return result.exit_code;
}

}  // namespace

int run(const std::vector<std::string>& words, std::ostream& out, std::ostream& err) {
  try {
    return answer(words, out, err);
  } catch (const ConfigurationError& error) {
    for (const Problem& problem : error.problems()) err << "zeroplan: error: " << problem.text() << '\n';
    return kBadInput;
  } catch (const std::exception& error) {
    err << "zeroplan: error: " << error.what() << " (a defect of zeroplan: please report the command)\n";
    return kNotPossible;
  }
}

}  // namespace zeroplan::cli
