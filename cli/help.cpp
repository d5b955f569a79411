#include "cli/help.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/options.hpp"

namespace zeroplan::cli {
namespace {

constexpr std::size_t kHelpColumn = 34;
constexpr std::size_t kLineWidth = 100;

// "  LEFT      right", with the right side below when the left one is too long.
std::string entry(const std::string& left, std::string_view right) {
  const std::string below = '\n' + std::string(kHelpColumn, ' ');
  const std::string text =
      fmt::format("{}", fmt::join(reports::wrapped_lines(right, kLineWidth - kHelpColumn), below));
  if (left.size() + 4 > kHelpColumn) return fmt::format("  {}\n{:{}}{}\n", left, "", kHelpColumn, text);
  return fmt::format("  {:<{}}{}\n", left, kHelpColumn - 2, text);
}

// Every line of a text within the width of help; longer ones go on in the next.
std::string wrapped(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (line.size() <= kLineWidth) {
      result += std::string(line) + '\n';
    } else {
      result += fmt::format("{}\n", fmt::join(reports::wrapped_lines(line, kLineWidth), "\n"));
    }
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return result;
}

std::string examples(const std::vector<Example>& list) {
  std::string text = "\nExamples:\n";
  for (const Example& example : list)
    text += fmt::format("  # {}\n  zeroplan {}\n", example.what, example.command);
  return text;
}

std::string option_names(const OptionSpec& spec) {
  std::string names = fmt::format("{}", fmt::join(spec.names, ", "));
  const bool is_long_list = spec.placeholder.size() > 20;
  if (spec.placeholder.empty() || is_long_list) return names;
  return names + ' ' + spec.placeholder;
}

std::string option_help(const OptionSpec& spec) {
  if (spec.placeholder.size() <= 20) return spec.help;
  return fmt::format("{} ({})", spec.help, spec.placeholder);
}

std::string what_it_is() {
  std::string text =
      "zeroplan plans the training of large transformers, and runs the plan:\nwill it fit, what will it "
      "move, how fast will it be.\n\n"
      "Usage: zeroplan COMMAND ... [options]\n\nCommands:\n";
  for (const Command& command : commands()) {
    text += fmt::format("  {:<10}{}\n", command.name, command.summary);
  }
  return text;
}

}  // namespace

std::string short_help() {
  return what_it_is() + "\n  zeroplan --help shows examples; zeroplan COMMAND --help a command's options.\n";
}

std::string program_help() {
  std::string text = what_it_is();
  text +=
      "\n  zeroplan COMMAND --help shows a command's options and examples.\n"
      "  zeroplan --version prints the version and the commit it was built from.\n";
  std::vector<Example> list;
  for (const Command& command : commands()) list.push_back(command.examples.front());
  return text + examples(list) +
         "\nExit codes: 0 yes, 1 no, 2 bad input, 3 not possible on this machine, 4 the live run failed,\n"
         "5 cannot say: something that the answer needs is not known, and it is named.\n"
         "130, 143, 138: SIGINT, SIGTERM or SIGUSR1 ended the live run after a step.\n"
         "Sizes: GB is 1e9 bytes, GiB is 2^30. Only the answer goes to standard output.\n";
}

std::string command_help(const Command& command) {
  std::string text = fmt::format("zeroplan {}: {}\n\nUsage: zeroplan {} {} [options]\n\n{}", command.name,
                                 command.summary, command.name, command.arguments, wrapped(command.details));
  const std::vector<OptionSpec> specs = options_of(command);
  text += "\nOptions:\n";
  for (const OptionSpec& spec : specs) {
    if (!spec.of_plan) text += entry(option_names(spec), option_help(spec));
  }
  text += entry("-h, --help", "this text");
  if (command.takes_plan) {
    text += "\nThe plan (what is left out is derived or assumed, and every assumption is printed):\n";
    for (const OptionSpec& spec : specs) {
      if (spec.of_plan) text += entry(option_names(spec), option_help(spec));
    }
  }
  return text + examples(command.examples);
}

}  // namespace zeroplan::cli
