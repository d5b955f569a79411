#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/accuracy/score.hpp"
#include "reports/report.hpp"

namespace zeroplan::reports {

// What was scored: the command, its files and the letters of --quality.
struct AccuracyInputs {
  std::string command;
  std::vector<std::string> files;
  std::string qualities;
};

// Schema zeroplan.accuracy/1 (docs/accuracy.md): errors of step times in sample and held out; CSV has one row per source, GPU and stage.
Report accuracy_report(std::string_view version, const AccuracyInputs& inputs,
                       const accuracy::Accuracy& accuracy);

}  // namespace zeroplan::reports
