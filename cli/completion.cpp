#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "cli/options.hpp"
#include "cli/output_file.hpp"
#include "planner/describe/machine/cluster.hpp"
#include "planner/describe/model/model.hpp"
#include "planner/error.hpp"

// Scripts that complete commands, options and their values in a shell, made of the same table as the help.
namespace zeroplan::cli {
namespace {

constexpr std::string_view kFiles = "FILE";

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, " ")); }

// The values of an option whose placeholder lists them; machines and formats; empty for others.
std::vector<std::string> values_of(const OptionSpec& spec) {
  if (spec.key == "hw") {
    std::vector<std::string> names;
    for (const describe::HardwareName& preset : describe::preset_hardware_names())
      names.push_back(preset.name);
    return names;
  }
  if (spec.key == "output") return reports::format_names();
  std::vector<std::string> values;
  if (spec.placeholder.find('|') == std::string::npos) return values;
  for (std::size_t begin = 0; begin <= spec.placeholder.size();) {
    const std::size_t end = std::min(spec.placeholder.find('|', begin), spec.placeholder.size());
    std::string value = spec.placeholder.substr(begin, end - begin);
    value = value.substr(0, value.find('['));
    if (!value.empty() && std::islower(static_cast<unsigned char>(value[0])) != 0)
      values.push_back(std::move(value));
    begin = end + 1;
  }
  return values;
}

std::vector<std::string> options_in(const Command& command) {
  std::vector<std::string> names;
  for (const OptionSpec& spec : options_of(command))
    names.insert(names.end(), spec.names.begin(), spec.names.end());
  names.emplace_back("--help");
  return names;
}

// What may stand where a command has no option: words of its usage in small letters, or models.
std::vector<std::string> arguments_of(const Command& command) {
  std::vector<std::string> words;
  if (command.arguments.find("MODEL") != std::string_view::npos) words = describe::preset_model_names();
  std::string word;
  for (const char c : std::string(command.arguments) + " ") {
    if (std::islower(static_cast<unsigned char>(c)) != 0) {
      word += c;
    } else {
      if (word.size() > 2) words.push_back(word);
      word.clear();
    }
  }
  return words;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.emplace_back(command.name);
  return names;
}

// Options whose value is among a few, each once: the same option has the same values in every command.
std::vector<OptionSpec> valued_options() {
  std::vector<OptionSpec> list;
  for (const Command& command : commands()) {
    for (const OptionSpec& spec : options_of(command)) {
      const bool known = std::any_of(list.begin(), list.end(),
                                     [&](const OptionSpec& other) { return other.names == spec.names; });
      if (!known && (!values_of(spec).empty() || spec.placeholder == kFiles)) list.push_back(spec);
    }
  }
  return list;
}

std::string bash_script() {
  std::string text =
      "# Completion of zeroplan for bash. To use it now: . <(zeroplan completion bash)\n"
      "_zeroplan() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=''\n"
      "  COMPREPLY=()\n"
      "  case $before in\n";
  for (const OptionSpec& spec : valued_options()) {
    const std::string names = fmt::format("{}", fmt::join(spec.names, "|"));
    text += spec.placeholder == kFiles
                ? fmt::format("    {}) return ;;\n", names)
                : fmt::format("    {}) words='{}' ;;\n", names, joined(values_of(spec)));
  }
  text += "  esac\n  if [ -z \"$words\" ]; then\n    case ${COMP_WORDS[1]} in\n";
  for (const Command& command : commands()) {
    text += fmt::format("      {}) words='{}'; [[ $current == -* ]] && words='{}' ;;\n", command.name,
                        joined(arguments_of(command)), joined(options_in(command)));
  }
  text += fmt::format("    esac\n    [ \"$COMP_CWORD\" -gt 1 ] || words='{} --help --version'\n  fi\n",
                      joined(command_names()));
  return text +
         "  while IFS= read -r word; do COMPREPLY+=(\"$word\"); done < <(compgen -W \"$words\" -- "
         "\"$current\")\n"
         "}\n"
         "complete -o default -F _zeroplan zeroplan\n";
}

std::string zsh_script() {
  std::string text =
      "#compdef zeroplan\n# Completion of zeroplan for zsh: a file _zeroplan in a folder of $fpath.\n"
      "if (( CURRENT == 2 )); then\n  local -a commands=(\n";
  const auto quoted = [](std::string_view words) {
    std::string result(words);
    std::erase_if(result, [](char c) { return c == '\'' || c == ':'; });
    return result;
  };
  for (const Command& command : commands())
    text += fmt::format("    '{}:{}'\n", command.name, quoted(command.summary));
  text += "  )\n  _describe command commands\n  return\nfi\ncase $words[CURRENT-1] in\n";
  for (const OptionSpec& spec : valued_options()) {
    const std::string names = fmt::format("{}", fmt::join(spec.names, "|"));
    text += spec.placeholder == kFiles
                ? fmt::format("  {}) _files; return ;;\n", names)
                : fmt::format("  {}) compadd -- {}; return ;;\n", names, joined(values_of(spec)));
  }
  text += "esac\nif [[ $PREFIX == -* ]]; then\n  case $words[2] in\n";
  for (const Command& command : commands())
    text += fmt::format("    {}) compadd -- {} ;;\n", command.name, joined(options_in(command)));
  text += "  esac\nelse\n  case $words[2] in\n";
  for (const Command& command : commands())
    text += fmt::format("    {}) compadd -- {} ;;\n", command.name, joined(arguments_of(command)));
  return text + "  esac\n  _files\nfi\n";
}

std::string fish_script() {
  std::string text = "# Completion of zeroplan for fish. To use it now: zeroplan completion fish | source\n";
  const auto quoted = [](std::string_view words) {
    std::string result;
    for (const char c : words) {
      if (c == '\'' || c == '\\') result += '\\';
      result += c == '\n' ? ' ' : c;
    }
    return "'" + result + "'";
  };
  for (const Command& command : commands()) {
    text += fmt::format("complete -c zeroplan -n __fish_use_subcommand -a {} -d {}\n", command.name,
                        quoted(command.summary));
    const std::string condition = fmt::format("-n '__fish_seen_subcommand_from {}'", command.name);
    if (const auto words = arguments_of(command); !words.empty())
      text += fmt::format("complete -c zeroplan {} -a {}\n", condition, quoted(joined(words)));
    for (const OptionSpec& spec : options_of(command)) {
      std::string line = fmt::format("complete -c zeroplan {}", condition);
      for (const std::string& name : spec.names)
        line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      const std::vector<std::string> values = values_of(spec);
      if (!values.empty()) {
        line += " -xa " + quoted(joined(values));
      } else if (!spec.placeholder.empty()) {
        line += spec.placeholder == kFiles ? " -rF" : " -x";
      }
      text += line + " -d " + quoted(spec.help) + '\n';
    }
  }
  return text;
}

}  // namespace

Answer completion(const Request& request) {
  static const std::vector<std::string> shells{"bash", "zsh", "fish"};
  if (request.arguments.size() != 1 || std::count(shells.begin(), shells.end(), request.arguments[0]) == 0) {
    throw ConfigurationError(
        Problem{"SHELL", 0, "",
                fmt::format("found {}, expected one of {}",
                            request.arguments.empty() ? "nothing" : zeroplan::quoted(request.arguments[0]),
                            fmt::join(shells, ", "))});
  }
  const std::string& shell = request.arguments[0];
  return plain_answer(request, shell == "bash"  ? bash_script()
                               : shell == "zsh" ? zsh_script()
                                                : fish_script());
}

}  // namespace zeroplan::cli
