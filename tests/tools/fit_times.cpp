#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "planner/accuracy/modelled_run.hpp"
#include "planner/accuracy/run.hpp"
#include "planner/predict/time.hpp"
#include "planner/program/compile.hpp"

// Fits the pace of an engine (planner/program/engines) to every third modelled row of a file of runs, and
// shows the error on those and on the others. Coordinate descent on the mean absolute logarithm of predicted
// / measured.
namespace {

using namespace zeroplan;

struct FittedRun {
  accuracy::ModelledRun modelled;
  program::StepProgram program;
  double measured_seconds = 0;
  std::string source;
};

using Field = double describe::Engine::*;

// `most`: no engine multiplies faster than the device.
struct Constant {
  const char* name;
  Field field;
  double most;
};
constexpr std::array<Constant, 5> kConstants{
    {{"matmul_fraction", &describe::Engine::matmul_fraction, 1},
     {"attention_fraction", &describe::Engine::attention_fraction, 2},
     {"kernel_gap_us", &describe::Engine::kernel_gap_us, 1000},
     {"host_issue_us", &describe::Engine::host_issue_us, 1000},
     {"elementwise_factor", &describe::Engine::elementwise_factor, 20}}};

using Values = std::array<double, kConstants.size()>;

void add_runs(const char* path, const std::string& engine, std::vector<FittedRun>& fitted) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  for (const accuracy::Run& run : accuracy::read_runs(text.str(), path)) {
    if (!run.step_seconds || run.quality == 'C') continue;
    auto modelled = accuracy::model_run(run);
    auto* plan = std::get_if<accuracy::ModelledRun>(&modelled);
    if (plan == nullptr || plan->plan.engine.name != engine) continue;
    program::StepProgram program = program::compile(plan->model, plan->plan);
    fitted.push_back({std::move(*plan), std::move(program), *run.step_seconds, run.source});
  }
}

struct SourceErrors {
  double relative = 0, signed_relative = 0, logarithm = 0;  // sums
  double runs = 0;
};
using Errors = std::map<std::string, SourceErrors>;

// Of every third run, or of the others, by source.
Errors errors_of(const std::vector<FittedRun>& runs, const Values& values, bool fitted) {
  Errors errors;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if ((i % 3 == 0) != fitted) continue;
    describe::Plan plan = runs[i].modelled.plan;
    for (std::size_t c = 0; c < kConstants.size(); ++c) plan.engine.*kConstants[c].field = values[c];
    const describe::Cluster& cluster = runs[i].modelled.cluster;
    const double seconds =
        predict::read_time(runs[i].program, cluster, predict::kernel_rates(cluster.device, plan)).seconds;
    if (seconds <= 0) continue;
    const double ratio = seconds / runs[i].measured_seconds;
    SourceErrors& source = errors[runs[i].source];
    source.logarithm += std::abs(std::log(ratio));
    source.relative += std::abs(ratio - 1);
    source.signed_relative += ratio - 1;
    ++source.runs;
  }
  return errors;
}

double loss_of(const Errors& errors) {
  double sum = 0;
  double weights = 0;
  for (const auto& [name, source] : errors) {
    const double weight = std::sqrt(source.runs);
    sum += weight * source.logarithm / source.runs;
    weights += weight;
  }
  return sum / weights;
}

void show(const char* what, const Errors& errors) {
  for (const auto& [name, source] : errors) {
    fmt::print("{:<12}{:<22}{:>4} runs, mean absolute error {:5.1f} %, bias {:+6.1f} %\n", what, name,
               source.runs, 100 * source.relative / source.runs, 100 * source.signed_relative / source.runs);
  }
}

}  // namespace

// Arguments: the engine, `-NAME` for each constant that stays at its default, and files of runs.
int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: {} ENGINE [-CONSTANT...] RUNS.csv...\n", argv[0]);
    return 2;
  }
  std::vector<FittedRun> runs;
  Values values{0.9, 0.8, 10, 40, 1.5};
  std::array<bool, kConstants.size()> stays{};
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    if (!argument.starts_with('-')) {
      add_runs(argv[i], argv[1], runs);
      continue;
    }
    for (std::size_t c = 0; c < kConstants.size(); ++c) {
      if (argument.substr(1) != kConstants[c].name) continue;
      stays[c] = true;
      values[c] = describe::Engine{}.*kConstants[c].field;
    }
  }
  double best = loss_of(errors_of(runs, values, true));
  for (const double step : {0.3, 0.15, 0.07, 0.03, 0.01}) {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t c = 0; c < kConstants.size(); ++c) {
        if (stays[c]) continue;
        double& value = values[c];
        for (const double factor : {std::exp(step), std::exp(-step)}) {
          const double before = value;
          value = std::min(value * factor, kConstants[c].most);
          const double error = loss_of(errors_of(runs, values, true));
          if (error < best - 1e-6) {
            best = error;
            moved = true;
          } else {
            value = before;
          }
        }
      }
    }
  }
  for (std::size_t c = 0; c < kConstants.size(); ++c) {
    if (!stays[c]) fmt::print("{}: {:.3g}\n", kConstants[c].name, values[c]);
  }
  show("fitted", errors_of(runs, values, true));
  show("held out", errors_of(runs, values, false));
}
