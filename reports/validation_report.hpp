#pragma once

#include <string>
#include <string_view>

#include "reports/comparison.hpp"
#include "reports/fit_report.hpp"

namespace zeroplan::reports {

// What a live run came to.
enum class RunOutcome {
  predicted,     // nothing has run yet: the prediction as it was written down
  agrees,        // every figure within its tolerance
  differs,       // at least one is not
  not_possible,  // not started: it does not fit, or something is missing here
  failed,        // started, and ended with an error
  interrupted,   // a signal ended it after a step
};
std::string_view name_of(RunOutcome outcome);

// The machine that a run was on, and what it ran with.
struct RunEnvironment {
  std::string processor;  // "AMD EPYC 7713 64-Core Processor"
  std::int64_t logical_cpus = 0;
  Bytes memory_bytes = 0;
  std::string system;    // "Linux 6.1.0 x86_64"
  std::string compiler;  // what built zeroplan
  std::string commit;    // what it was built from (cli/version.hpp)
  std::string started;   // UTC, ISO 8601
  std::string command;   // as it was given
};

struct ValidationAnswer {
  const FitAnswer& prediction;  // with what it was made from
  const RunEnvironment& environment;
  RunOutcome outcome = RunOutcome::predicted;
  std::string reason{};                               // why it was not started, failed, or ended early
  const program::Measurement* measurement = nullptr;  // agrees, differs, interrupted
};

// Schema zeroplan.validation/1 (docs/validate.md): inputs, machine, prediction, measurement and their
// comparison; enough to make the report from later.
Report validation_report(const ValidationAnswer& answer);

// The line of one step for people who wait: "step 3/12  loss 5.4213  ...".
std::string step_text(const predict::Prediction& prediction, const program::StepMeasurement& step,
                      std::int64_t last_step);

// What is predicted, in one line, before anything runs.
std::string prediction_line(const predict::Prediction& prediction, const describe::Plan& plan);

}  // namespace zeroplan::reports
