#include "cli/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <utility>

#include "planner/describe/text/not_modelled.hpp"

namespace zeroplan::cli {
namespace {

std::string dashed(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

void add_plan_options(std::vector<OptionSpec>& specs) {
  specs.push_back(
      {{"-f", "--file"}, "file", "FILE", "a plan file (docs/plans.md); options win over it", false, false});
  specs.push_back(
      {{"--set"}, "set", "KEY=VALUE", "one key of the plan, repeatable; wins over the file", false, true});
  specs.push_back(
      {{"--hw"}, "hw", "NAME|FILE", "the machine: a preset (zeroplan hw list) or a YAML file", false, false});
  for (const describe::PlanKey& key : describe::plan_keys()) {
    std::vector<std::string> names{dashed(key.name)};
    if (key.name == "tp") names.emplace_back("--mp");
    specs.push_back({std::move(names), key.name, key.placeholder, key.help, true, false});
  }
}

std::string joined(const std::vector<std::string>& names) {
  std::string result;
  for (const std::string& name : names) result += (result.empty() ? "" : ",") + name;
  return result;
}

bool is_on_off(const OptionSpec& spec) { return spec.placeholder == "on|off"; }
bool is_switch(const OptionSpec& spec) { return spec.placeholder.empty() || is_on_off(spec); }

// A switch takes what follows it as its value only where that is the word of a switch, so MODEL may follow a
// bare one: "--overlap off" becomes "--overlap=off".
std::vector<std::string> with_switches_joined(const std::vector<OptionSpec>& specs,
                                              const std::vector<std::string>& words) {
  static const std::vector<std::string> values{"on", "off", "true", "false", "yes", "no"};
  const auto has = [](const std::vector<std::string>& list, const std::string& word) {
    return std::find(list.begin(), list.end(), word) != list.end();
  };
  const auto is_bare_switch = [&](const std::string& word) {
    return std::any_of(specs.begin(), specs.end(),
                       [&](const OptionSpec& spec) { return is_on_off(spec) && has(spec.names, word); });
  };
  std::vector<std::string> result;
  for (const std::string& word : words) {
    if (!result.empty() && has(values, word) && is_bare_switch(result.back())) {
      result.back() += '=' + word;
    } else {
      result.push_back(word);
    }
  }
  return result;
}

std::vector<std::string> all_names(const std::vector<OptionSpec>& specs) {
  std::vector<std::string> names{"--help"};
  for (const OptionSpec& spec : specs) names.insert(names.end(), spec.names.begin(), spec.names.end());
  return names;
}

Problem unknown_option(const std::string& word, const std::vector<OptionSpec>& specs, bool takes_plan) {
  const std::string name = word.substr(0, word.find('='));
  const std::size_t letters = std::min(name.find_first_not_of('-'), name.size());
  if (const std::string known = describe::not_modelled(describe::Vocabulary::plan_key, name.substr(letters));
      takes_plan && !known.empty()) {
    return {name, 0, "", known};
  }
  const std::string nearest = nearest_name(name, all_names(specs));
  return {name, 0, "", nearest.empty() ? "unknown option" : "unknown option; nearest: " + nearest};
}

describe::Value scalar(std::string text) {
  describe::Value value;
  value.kind = describe::Value::Kind::scalar;
  value.text = std::move(text);
  return value;
}

void read_set(const std::string& text, describe::PlanOptions& options, Problems& problems) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    problems.add({"--set", 0, "",
                  fmt::format("found {}, expected KEY=VALUE, such as zero=2", zeroplan::quoted(text))});
    return;
  }
  const std::string key = text.substr(0, equals);
  describe::PlanOptions one;
  describe::set_plan_option(one, key, scalar(text.substr(equals + 1)), "--set", problems);
  for (const auto& [name, origin] : one.origins) {
    if (options.origins.contains(name)) problems.add({"--set", 0, key, "given twice"});
  }
  options = describe::merge(options, one);
}

void read_format(const std::string& text, Request& request, Problems& problems) {
  const std::vector<std::string>& names = reports::format_names();
  const auto found = std::find(names.begin(), names.end(), text);
  if (found != names.end()) {
    request.format = static_cast<reports::Format>(found - names.begin());
    return;
  }
  const std::string nearest = nearest_name(text, names);
  problems.add({"-o", 0, "",
                fmt::format("found {}, expected one of {}{}", zeroplan::quoted(text), fmt::join(names, ", "),
                            nearest.empty() ? "" : "; nearest: " + nearest)});
}

// "table (default), json, jsonl, csv, md, yaml or html"; the default comes first.
std::string formats_text(reports::Format first) {
  const std::vector<std::string>& names = reports::format_names();
  const std::string& own = names[static_cast<std::size_t>(first)];
  std::vector<std::string> others;
  std::copy_if(names.begin(), names.end(), std::back_inserter(others),
               [&](const std::string& name) { return name != own; });
  const std::string last = others.back();
  others.pop_back();
  return fmt::format("{} (default), {} or {}", own, fmt::join(others, ", "), last);
}

}  // namespace

std::vector<OptionSpec> options_of(const Command& command) {
  std::vector<OptionSpec> specs{
      {{"-o", "--output"}, "output", "FORMAT", formats_text(command.default_format), false, false},
      {{"--out"}, "out", "FILE", "write the answer to FILE, atomically", false, false},
      {{"-q", "--quiet"}, "quiet", "", "print nothing; set the exit code only", false, false}};
  specs.insert(specs.end(), command.own_options.begin(), command.own_options.end());
  if (command.takes_plan) add_plan_options(specs);
  return specs;
}

GivenLine split_line(const Command& command, const std::vector<std::string>& words, Problems& problems) {
  const std::vector<OptionSpec> specs = options_of(command);
  GivenLine line;
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  const CLI::Option* help = app.add_flag("-h,--help");
  std::vector<CLI::Option*> parsed;
  for (const OptionSpec& spec : specs) {
    CLI::Option* option =
        is_switch(spec) ? app.add_flag(joined(spec.names)) : app.add_option(joined(spec.names));
    if (!is_switch(spec)) option->expected(1)->allow_extra_args(false);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    parsed.push_back(option);
  }
  try {
    const std::vector<std::string> joined_words = with_switches_joined(specs, words);
    app.parse(std::vector<std::string>(joined_words.rbegin(), joined_words.rend()));
  } catch (const CLI::ParseError& error) {
    // With every value taken as text and extra words allowed, a value missing at the end is all that is left.
    const std::string message = error.what();
    problems.add({message.substr(0, message.find(':')), 0, "", "a value is missing"});
    return line;
  }
  line.help = help->count() > 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::vector<std::string> texts = parsed[i]->results();
    if (texts.size() > 1 && !specs[i].repeatable) {
      problems.add(
          {specs[i].names.front(), 0, "", "given twice: " + fmt::format("{}", fmt::join(texts, ", "))});
      continue;
    }
    for (const std::string& text : texts) {
      line.options.push_back({specs[i].names.front(), specs[i].key, text, specs[i].of_plan});
    }
  }
  for (const std::string& word : app.remaining()) {
    if (word.size() > 1 && word.front() == '-') {
      problems.add(unknown_option(word, specs, command.takes_plan));
    } else {
      line.arguments.push_back(word);
    }
  }
  return line;
}

Request read_request(const Command& command, const GivenLine& line, Problems& problems) {
  Request request;
  request.format = command.default_format;
  request.arguments = line.arguments;
  describe::PlanFile file;
  describe::PlanOptions from_set;
  describe::PlanOptions from_options;
  for (const GivenOption& option : line.options) {
    if (option.of_plan) {
      describe::set_plan_option(from_options, option.key, scalar(option.text), option.name, problems);
    } else if (option.key == "file") {
      try {
        file = describe::read_plan_file(option.text);
      } catch (const ConfigurationError& error) {
        problems.add(error);
      }
    } else if (option.key == "set") {
      read_set(option.text, from_set, problems);
    } else if (option.key == "hw") {
      request.hardware = option.text;
    } else if (option.key == "output") {
      read_format(option.text, request, problems);
    } else if (option.key == "out") {
      request.out = option.text;
    } else if (option.key == "quiet") {
      request.quiet = true;
    } else {
      request.own.emplace(option.key, option.text);
    }
  }
  problems.throw_if_any();
  if (command.takes_plan) {
    request.options = describe::merge(describe::merge(file.options, from_set), from_options);
    request.model = file.model.value_or("");
    if (request.hardware.empty()) request.hardware = file.hardware.value_or("");
  }
  return request;
}

}  // namespace zeroplan::cli
