#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "planner/accuracy/run.hpp"
#include "tests/support/command.hpp"

namespace zeroplan::test {

inline std::string runs_path(const std::string& name) { return ZEROPLAN_TEST_DATA "/runs/" + name; }

inline const std::vector<accuracy::Run>& measured_runs() {
  static const std::vector<accuracy::Run> runs =
      accuracy::read_runs(read_file(runs_path("measured_runs.csv")), "measured_runs.csv");
  return runs;
}

inline const std::vector<accuracy::Run>& vtrain_runs() {
  static const std::vector<accuracy::Run> runs =
      accuracy::read_runs(read_file(runs_path("vtrain_runs.csv")), "vtrain_runs.csv");
  return runs;
}

inline accuracy::Run measured_run(const std::string& id) {
  for (const accuracy::Run& run : measured_runs()) {
    if (run.id == id) return run;
  }
  throw std::runtime_error("no run " + id);
}

}  // namespace zeroplan::test
