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

}  // namespace

std::string program_help() {
  std::string text =
      "zeroplan plans the training of large transformers, and runs the plan:\nwill it fit, what will it "
      "move, how fast will it be.\n\n"
      "Usage: zeroplan COMMAND ... [options]\n\nCommands:\n";
  for (const Command& command : commands()) {
    text += fmt::format("  {:<10}{}\n", command.name, command.summary);
  }
  text +=
      "\n  zeroplan COMMAND --help shows a command's options and examples.\n"
      "  zeroplan --version prints the version and the commit it was built from.\n";
  std::vector<Example> list;
  for (const Command& command : commands()) list.push_back(command.examples.front());
  return text + examples(list) +
         "\nExit codes: 0 yes, 1 no, 2 bad input, 3 not possible on this machine, 4 the live run failed.\n"
         "Sizes: GB is 1e9 bytes, GiB is 2^30. Only the answer goes to standard output.\n";
}

std::string command_help(const Command& command) {
  std::string text = fmt::format("zeroplan {}: {}\n\nUsage: zeroplan {} {} [options]\n\n{}\n", command.name,
                                 command.summary, command.name, command.arguments, command.details);
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
