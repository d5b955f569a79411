#pragma once

#include <map>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/describe/plan/plan.hpp"
#include "planner/predict/verdict.hpp"
#include "reports/report.hpp"
#include "reports/writers.hpp"

namespace zeroplan::cli {

// Exit codes of every command.
inline constexpr int kYes = 0;
inline constexpr int kNo = 1;
inline constexpr int kBadInput = 2;
inline constexpr int kNotPossible = 3;
inline constexpr int kRunFailed = 4;
inline constexpr int kCannotSay = 5;
inline constexpr int kInterrupted = 128;  // and the number of the signal, as shells have it

// Of a plan's verdict.
constexpr int exit_code_of(predict::Verdict verdict) {
  switch (verdict) {
    case predict::Verdict::fits:
    case predict::Verdict::fits_tightly:
      return kYes;
    case predict::Verdict::does_not_fit:
      return kNo;
    case predict::Verdict::cannot_say:
      break;
  }
  return kCannotSay;
}

struct OptionSpec {
  std::vector<std::string> names;  // with dashes, the first one is shown in messages
  std::string key;                 // of the plan, or the long name
  std::string placeholder;         // empty: takes no value
  std::string help;
  bool of_plan = false;
  bool repeatable = false;
};

// What the user asked, read but not interpreted further than text goes.
struct Request {
  std::vector<std::string> arguments;  // in order, without the command's name
  describe::PlanOptions options;       // plan file, --set and options merged
  std::string hardware;                // --hw
  std::string model;                   // `model` of the plan file, for when MODEL is left out
  std::map<std::string, std::string, std::less<>> own;  // options of this command alone, by key
  std::vector<std::string> words;                       // the whole line, as it was given
  std::ostream* progress = nullptr;                     // where people who wait read; null: nowhere
  std::ostream* answers = nullptr;                      // standard output, for what is written bit by bit
  reports::Format format = reports::Format::table;
  std::string out;  // --out; empty: standard output
  bool quiet = false;
};

struct Answer {
  reports::Report report;
  int exit_code = kYes;
  bool is_silent = false;  // another process gives the answer, or it is written already
};

struct Example {
  std::string_view command;  // after "zeroplan "
  std::string_view what;
};

// A command: how help describes it, which options it takes, and the function that answers.
struct Command {
  std::string_view name;
  std::string_view arguments;  // "MODEL --hw MACHINE"
  std::string_view summary;    // one line
  std::string_view details;
  std::vector<Example> examples;
  bool takes_plan = false;
  Answer (*answer)(const Request& request) = nullptr;
  std::vector<OptionSpec> own_options{};
  reports::Format default_format = reports::Format::table;  // without -o
};

// In the order help shows them.
std::span<const Command> commands();

Answer fit(const Request& request);
std::vector<OptionSpec> fit_options();
std::vector<OptionSpec> explain_options();
Answer compare(const Request& request);
Answer report(const Request& request);
Answer completion(const Request& request);
Answer manual(const Request& request);
Answer explain(const Request& request);
Answer models(const Request& request);
Answer hw(const Request& request);
std::vector<OptionSpec> hw_options();
Answer doctor(const Request& request);
std::vector<OptionSpec> doctor_options();
Answer validate(const Request& request);
std::vector<OptionSpec> validate_options();
Answer accuracy(const Request& request);
std::vector<OptionSpec> accuracy_options();
Answer calibrate(const Request& request);
std::vector<OptionSpec> calibrate_options();

}  // namespace zeroplan::cli
