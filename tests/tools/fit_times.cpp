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
#include "planner/predict/kernels.hpp"
#include "planner/predict/time.hpp"
#include "planner/program/compile.hpp"

// Fits the constants of pace to all modelled rows of files of runs: of the engines (planner/program/engines)
// and of architectures (planner/predict/kernels.cpp). Coordinate descent, from several starts, on the mean of
// |predicted / measured - 1|, in which no row counts for more than kMostError. Then shows the errors of the
// rows by source, and what they are when the constants are fitted to the other half of the rows only.
namespace {

using namespace zeroplan;

constexpr double kMostError = 0.3;
constexpr double kMostRuns = 100;

struct FittedRun {
  accuracy::ModelledRun modelled;
  program::StepProgram program;
  double measured_seconds = 0;
  std::string source;
};

using Field = double describe::Engine::*;

// `group`: engines that share the constant, or an architecture.
struct Constant {
  const char* group;
  const char* name;
  Field field;  // null: what an architecture sustains of its products' rate
  double first, most;
};
constexpr const char* kMegatron = "megatron, megatron-deepspeed, megatron-v1";
constexpr const char* kPyTorch = "deepspeed, fsdp2, llm-foundry, pytorch";
constexpr std::array<Constant, 11> kConstants{
    {{kMegatron, "matmul_fraction", &describe::Engine::matmul_fraction, 0.9, 1},
     {kMegatron, "kernel_gap_us", &describe::Engine::kernel_gap_us, 40, 1000},
     {kMegatron, "host_issue_us", &describe::Engine::host_issue_us, 109, 1000},
     {kMegatron, "elementwise_factor", &describe::Engine::elementwise_factor, 1.75, 20},
     {kPyTorch, "matmul_fraction", &describe::Engine::matmul_fraction, 0.8, 1},
     {kPyTorch, "attention_fraction", &describe::Engine::attention_fraction, 0.6, 2},
     {kPyTorch, "host_issue_us", &describe::Engine::host_issue_us, 360, 1000},
     {kPyTorch, "elementwise_factor", &describe::Engine::elementwise_factor, 1.5, 20},
     {kPyTorch, "traffic_slowdown", &describe::Engine::traffic_slowdown, 0.2, 1},
     {"Volta", "sustained", nullptr, 0.6, 1},
     {"Hopper", "sustained", nullptr, 0.9, 1}}};

using Values = std::array<double, kConstants.size()>;

bool is_of(const Constant& constant, const FittedRun& run) {
  if (constant.field == nullptr) return run.modelled.cluster.device.architecture == constant.group;
  const std::string names = fmt::format(", {},", constant.group);
  return names.find(fmt::format(" {},", run.modelled.plan.engine.name)) != std::string::npos;
}

void add_runs(const char* path, std::vector<FittedRun>& fitted) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  for (const accuracy::Run& run : accuracy::read_runs(text.str(), path)) {
    if (!run.step_seconds || run.quality == 'C') continue;
    auto modelled = accuracy::model_run(run);
    auto* plan = std::get_if<accuracy::ModelledRun>(&modelled);
    if (plan == nullptr) continue;
    program::StepProgram program = program::compile(plan->model, plan->plan);
    fitted.push_back({std::move(*plan), std::move(program), *run.step_seconds, run.source});
  }
}

double predicted_seconds(const FittedRun& run, const Values& values) {
  describe::Plan plan = run.modelled.plan;
  double sustained = predict::sustained_fraction(run.modelled.cluster.device);
  const double before = sustained;
  for (std::size_t c = 0; c < kConstants.size(); ++c) {
    if (!is_of(kConstants[c], run)) continue;
    if (kConstants[c].field == nullptr) {
      sustained = values[c];
    } else {
      plan.engine.*kConstants[c].field = values[c];
    }
  }
  predict::KernelRates rates = predict::kernel_rates(run.modelled.cluster.device, plan);
  rates.matmul_flops_per_s *= sustained / before;
  return predict::read_step_seconds(run.program, run.modelled.cluster, rates);
}

struct SourceErrors {
  double relative = 0, signed_relative = 0, capped = 0;  // sums
  double runs = 0;
};
using Errors = std::map<std::string, SourceErrors>;

using Runs = std::vector<const FittedRun*>;

Errors errors_of(const Runs& runs, const Values& values) {
  Errors errors;
  for (const FittedRun* run : runs) {
    const double seconds = predicted_seconds(*run, values);
    if (seconds <= 0) continue;
    const double ratio = seconds / run->measured_seconds;
    SourceErrors& source = errors[run->source];
    source.capped += std::min(std::abs(ratio - 1), kMostError);
    source.relative += std::abs(ratio - 1);
    source.signed_relative += ratio - 1;
    ++source.runs;
  }
  return errors;
}

// A source counts as its runs, but no more than kMostRuns, so that no large one hides the others.
double loss_of(const Errors& errors) {
  double sum = 0;
  double weights = 0;
  for (const auto& [name, source] : errors) {
    const double weight = std::min(source.runs, kMostRuns);
    sum += weight * source.capped / source.runs;
    weights += weight;
  }
  return sum / weights;
}

// One constant moved, or two against each other: what one takes another can give.
double descend(const Runs& runs, Values& values) {
  double best = loss_of(errors_of(runs, values));
  const auto moves = [&](Values moved) {
    for (std::size_t c = 0; c < kConstants.size(); ++c) moved[c] = std::min(moved[c], kConstants[c].most);
    const double error = loss_of(errors_of(runs, moved));
    if (error > best - 1e-5) return false;
    best = error;
    values = moved;
    return true;
  };
  for (const double step : {0.3, 0.1, 0.03, 0.01}) {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t c = 0; c < kConstants.size(); ++c) {
        for (std::size_t other = c; other < kConstants.size(); ++other) {
          for (const double size : {step, -step}) {
            Values next = values;
            next[c] *= std::exp(size);
            if (other != c) next[other] *= std::exp(-size);
            moved = moves(next) || moved;
          }
        }
      }
    }
  }
  return best;
}

Values fit(const Runs& runs) {
  Values best_values{};
  double best = 0;
  for (const double start : {1.0, 0.9, 0.8}) {
    Values values{};
    for (std::size_t c = 0; c < kConstants.size(); ++c) {
      values[c] = std::min(start * kConstants[c].first, kConstants[c].most);
    }
    const double error = descend(runs, values);
    if (best == 0 || error < best) {
      best = error;
      best_values = values;
    }
  }
  return best_values;
}

void add(Errors& errors, const Errors& more) {
  for (const auto& [name, source] : more) {
    SourceErrors& sum = errors[name];
    sum.relative += source.relative;
    sum.signed_relative += source.signed_relative;
    sum.runs += source.runs;
  }
}

void show(const char* what, const Errors& errors) {
  for (const auto& [name, source] : errors) {
    fmt::print("{:<12}{:<22}{:>4} runs, mean absolute error {:5.1f} %, bias {:+6.1f} %\n", what, name,
               source.runs, 100 * source.relative / source.runs, 100 * source.signed_relative / source.runs);
  }
}

}  // namespace

// Arguments: files of runs.
int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: {} RUNS.csv...\n", argv[0]);
    return 2;
  }
  std::vector<FittedRun> runs;
  for (int i = 1; i < argc; ++i) add_runs(argv[i], runs);
  Runs all;
  std::array<Runs, 2> halves;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    all.push_back(&runs[i]);
    halves[i % 2].push_back(&runs[i]);
  }
  const Values values = fit(all);
  for (std::size_t c = 0; c < kConstants.size(); ++c) {
    fmt::print("{:<40}{:<20}{:.3g}\n", kConstants[c].group, kConstants[c].name, values[c]);
  }
  show("fitted", errors_of(all, values));
  Errors held_out;
  for (std::size_t half = 0; half < halves.size(); ++half) {
    add(held_out, errors_of(halves[half], fit(halves[1 - half])));
  }
  show("held out", held_out);
}
