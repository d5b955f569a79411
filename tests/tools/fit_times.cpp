#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "planner/accuracy/modelled_run.hpp"
#include "planner/accuracy/pace.hpp"
#include "planner/accuracy/run.hpp"
#include "planner/program/compile.hpp"

// Fits the constants of pace (planner/accuracy/pace.hpp) to all modelled rows of files of runs. Coordinate
// descent, from several starts, on the mean of |predicted / measured - 1|, in which no row counts for more than
// kMostError. Then fits them anew without each fold of configurations, for pace_without(), and shows the errors
// of the rows by source, with the constants of all rows and with those that did not see them.
namespace {

using namespace zeroplan;
using accuracy::PaceValues;
using Values = PaceValues;

constexpr double kMostError = 0.3;
constexpr double kMostRuns = 100;
constexpr auto& kConstants = accuracy::kPace;

struct FittedRun {
  accuracy::ModelledRun modelled;
  program::StepProgram program;
  double measured_seconds = 0;
  std::string source;
  bool is_evidence = true;
};

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
    fitted.push_back(
        {std::move(*plan), std::move(program), *run.step_seconds, run.source, run.not_evidence.empty()});
  }
}

using Runs = std::vector<const FittedRun*>;
using Seconds = std::vector<double>;  // of each run; 0 where it is not known

Seconds seconds_of(const Runs& runs, const Values& values) {
  Seconds seconds;
  seconds.reserve(runs.size());
  for (const FittedRun* run : runs)
    seconds.push_back(accuracy::step_seconds(run->modelled, run->program, values));
  return seconds;
}

struct SourceErrors {
  double relative = 0, signed_relative = 0, capped = 0;  // sums
  double runs = 0;
};
using Errors = std::map<std::string, SourceErrors>;

Errors errors_of(const Runs& runs, const Seconds& seconds) {
  Errors errors;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (seconds[i] <= 0) continue;
    const double ratio = seconds[i] / runs[i]->measured_seconds;
    SourceErrors& source = errors[runs[i]->source];
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

// The runs whose pace depends on each constant.
struct Dependents {
  std::array<std::vector<std::size_t>, accuracy::kPaceConstants> of;

  explicit Dependents(const Runs& runs) {
    for (std::size_t c = 0; c < of.size(); ++c) {
      for (std::size_t i = 0; i < runs.size(); ++i) {
        if (accuracy::applies(kConstants[c], runs[i]->modelled)) of[c].push_back(i);
      }
    }
  }
  bool meet(std::size_t a, std::size_t b) const {
    return std::any_of(of[a].begin(), of[a].end(),
                       [&](std::size_t run) { return std::binary_search(of[b].begin(), of[b].end(), run); });
  }
};

// One constant moved, or two against each other that meet in a run: what one takes another can give.
double descend(const Runs& runs, const Dependents& dependents, Values& values) {
  Seconds seconds = seconds_of(runs, values);
  double best = loss_of(errors_of(runs, seconds));
  const auto moves = [&](std::size_t c, std::size_t other, double size) {
    Values next = values;
    next[c] *= std::exp(size);
    if (other != c) next[other] *= std::exp(-size);
    for (const std::size_t each : {c, other}) next[each] = std::min(next[each], kConstants[each].most);
    Seconds moved = seconds;
    for (const std::size_t each : {c, other}) {
      for (const std::size_t run : dependents.of[each]) {
        moved[run] = accuracy::step_seconds(runs[run]->modelled, runs[run]->program, next);
      }
      if (other == c) break;
    }
    const double error = loss_of(errors_of(runs, moved));
    if (error > best - 1e-5) return false;
    best = error;
    values = next;
    seconds = std::move(moved);
    return true;
  };
  for (const double step : {0.3, 0.1, 0.03, 0.01}) {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t c = 0; c < kConstants.size(); ++c) {
        for (std::size_t other = c; other < kConstants.size(); ++other) {
          if (!dependents.meet(c, other)) continue;
          for (const double size : {step, -step}) moved = moves(c, other, size) || moved;
        }
      }
    }
  }
  return best;
}

Values fit(const Runs& runs) {
  const Dependents dependents(runs);
  Values best_values{};
  double best = 0;
  for (const double start : {1.0, 0.9, 0.8}) {
    Values values{};
    for (std::size_t c = 0; c < kConstants.size(); ++c) {
      values[c] = std::min(start * kConstants[c].first, kConstants[c].most);
    }
    const double error = descend(runs, dependents, values);
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
  std::array<Runs, accuracy::kFolds> in_fold, others;
  for (const FittedRun& run : runs) {
    all.push_back(&run);
    // What is no evidence is in no fold: it may be fitted to, and nothing is claimed of it.
    const std::size_t fold = run.is_evidence ? accuracy::fold_of(run.modelled) : accuracy::kFolds;
    for (std::size_t k = 0; k < accuracy::kFolds; ++k) (k == fold ? in_fold[k] : others[k]).push_back(&run);
  }
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // it takes minutes: lines as they come
  const Values values = fit(all);
  for (std::size_t c = 0; c < kConstants.size(); ++c) {
    fmt::print("{:<40}{:<20}{:.3g}\n", kConstants[c].group, kConstants[c].name, values[c]);
  }
  show("in sample", errors_of(all, seconds_of(all, values)));
  Errors held_out;
  for (std::size_t fold = 0; fold < accuracy::kFolds; ++fold) {
    const Values without = fit(others[fold]);
    fmt::print("without fold {}, {} of {} rows: {{{:.3g}}}\n", fold, others[fold].size(), all.size(),
               fmt::join(without, ", "));
    add(held_out, errors_of(in_fold[fold], seconds_of(in_fold[fold], without)));
  }
  show("held out", held_out);
}
