#include <fmt/format.h>

#include <string>

#include "cli/command.hpp"
#include "cli/options.hpp"
#include "cli/output_file.hpp"
#include "cli/version.hpp"

// The manual page, made of the same table as the help.
namespace zeroplan::cli {
namespace {

// Text as roff takes it: no line begins a request, and a dash is one.
std::string escaped(std::string_view text) {
  std::string result;
  bool at_start = true;
  for (const char c : text) {
    if (at_start && (c == '.' || c == '\'')) result += "\\&";
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c;
    }
    at_start = c == '\n';
  }
  return result;
}

std::string option_entry(const OptionSpec& spec) {
  return fmt::format(".TP\n.B {}{}\n{}\n", escaped(fmt::format("{}", fmt::join(spec.names, ", "))),
                     spec.placeholder.empty() ? "" : " \\fR" + escaped(spec.placeholder), escaped(spec.help));
}

std::string command_section(const Command& command) {
  std::string text =
      fmt::format(".SS zeroplan {} {}\n{}.\n.PP\n{}\n", command.name, escaped(command.arguments),
                  escaped(command.summary), escaped(command.details));
  for (const OptionSpec& spec : options_of(command)) {
    if (!spec.of_plan) text += option_entry(spec);
  }
  for (const Example& example : command.examples)
    text += fmt::format(".PP\n{}:\n.PP\n.RS\n.B zeroplan {}\n.RE\n", escaped(example.what),
                        escaped(example.command));
  return text;
}

}  // namespace

Answer manual(const Request& request) {
  std::string text = fmt::format(
      ".TH ZEROPLAN 1 \"\" \"zeroplan {}\" \"User Commands\"\n.SH NAME\nzeroplan \\- memory, traffic and "
      "speed of training large "
      "transformers with ZeRO\n.SH SYNOPSIS\n.B zeroplan\n.I COMMAND\n[options]\n.SH DESCRIPTION\nPlans the "
      "training of large "
      "transformers, and runs the plan: will it fit, what will it move, how fast will it be.\n.SH COMMANDS\n",
      version());
  const Command* with_plan = nullptr;
  for (const Command& command : commands()) {
    text += command_section(command);
    if (command.takes_plan && with_plan == nullptr) with_plan = &command;
  }
  text +=
      ".SH THE PLAN\nCommands that take a plan take these; what is left out is derived or assumed, and every "
      "assumption is "
      "printed.\n";
  for (const OptionSpec& spec : options_of(*with_plan)) {
    if (spec.of_plan) text += option_entry(spec);
  }
  text +=
      ".SH EXIT STATUS\n.TP\n0\nyes\n.TP\n1\nno\n.TP\n2\nbad input\n.TP\n3\nnot possible on this "
      "machine\n.TP\n4\nthe live run "
      "failed\n.TP\n5\ncannot say: something that the answer needs is not known, and it is named\n.TP\n130, "
      "143, 138\nSIGINT, "
      "SIGTERM or SIGUSR1 ended the live run after a step\n";
  return plain_answer(request, text);
}

}  // namespace zeroplan::cli
