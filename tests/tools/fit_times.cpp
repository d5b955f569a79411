#include <fmt/format.h>
#include <fmt/ranges.h>

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <unsupported/Eigen/LevenbergMarquardt>
#include <vector>

#include "planner/accuracy/modelled_run.hpp"
#include "planner/accuracy/pace.hpp"
#include "planner/accuracy/run.hpp"
#include "planner/accuracy/statistics.hpp"
#include "planner/program/compile.hpp"

// Fits the constants of pace (planner/accuracy/pace.yaml) to all modelled rows of files of runs, by least squares with
// Levenberg and Marquardt's method (Eigen, after MINPACK). Then fits them anew without each fold of configurations, to
// the other two thirds, for pace_without(), and shows the errors of the rows by source, with the constants of all rows
// and with those that did not see them.
//
// A row's residual is its relative error e made robust, e / sqrt(1 + (e / kMostError)^2): its square is Geman and
// McClure's loss, which grows as e^2 for small errors and to kMostError^2 at most, so that rows which the planner does
// not describe pull little. The constants are fitted as logarithms, since all are above 0.
namespace {

using namespace zeroplan;
using accuracy::PaceConstant;
using Values = accuracy::PaceValues;

constexpr double kMostError = 0.1;
constexpr double kMostRuns = 100;

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
// Least squares over the logarithms of the constants that some run depends on.
class Problem : public Eigen::DenseFunctor<double> {
 public:
  Problem(const Runs& runs, std::vector<std::size_t> free)
      : Eigen::DenseFunctor<double>(static_cast<int>(free.size()), static_cast<int>(runs.size())),
        runs_(runs),
        free_(std::move(free)),
        weights_(static_cast<Eigen::Index>(runs.size())) {
    std::map<std::string, double> count;
    for (const FittedRun* run : runs) ++count[run->source];
    // A source counts as its runs, but no more than kMostRuns, so that no large one hides the others.
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const double of = count[runs[i]->source];
      weights_[static_cast<Eigen::Index>(i)] = std::sqrt(std::min(of, kMostRuns) / of);
    }
  }

  Values values_of(const InputType& logarithms) const {
    Values values;
    for (const PaceConstant& constant : accuracy::pace_constants()) values.push_back(constant.first);
    for (std::size_t f = 0; f < free_.size(); ++f) {
      const double most = accuracy::pace_constants()[free_[f]].most;
      values[free_[f]] = std::min(std::exp(logarithms[static_cast<Eigen::Index>(f)]), most);
    }
    return values;
  }

  int operator()(const InputType& logarithms, ValueType& residuals) const {
    const Values values = values_of(logarithms);
    for (std::size_t i = 0; i < runs_.size(); ++i)
      residuals[static_cast<Eigen::Index>(i)] = residual(i, values);
    return 0;
  }

  // Central differences; a run that a constant does not apply to has none.
  int df(const InputType& logarithms, JacobianType& slopes) const {
    constexpr double kStep = 2e-3;
    slopes.setZero(values(), inputs());
    for (std::size_t f = 0; f < free_.size(); ++f) {
      const auto column = static_cast<Eigen::Index>(f);
      InputType up = logarithms, down = logarithms;
      up[column] += kStep;
      down[column] -= kStep;
      const Values above = values_of(up), below = values_of(down);
      for (std::size_t i = 0; i < runs_.size(); ++i) {
        if (!accuracy::applies(accuracy::pace_constants()[free_[f]], runs_[i]->modelled)) continue;
        slopes(static_cast<Eigen::Index>(i), column) =
            (residual(i, above) - residual(i, below)) / (2 * kStep);
      }
    }
    return 0;
  }

 private:
  double residual(std::size_t i, const Values& values) const {
    const double seconds = accuracy::step_seconds(runs_[i]->modelled, runs_[i]->program, values);
    if (seconds <= 0) return 0;
    const double error = seconds / runs_[i]->measured_seconds - 1;
    return weights_[static_cast<Eigen::Index>(i)] * error / std::sqrt(1 + std::pow(error / kMostError, 2));
  }

  const Runs& runs_;
  std::vector<std::size_t> free_;
  ValueType weights_;
};

using Errors = std::map<std::string, std::vector<double>>;  // by source, relative

void add_errors(const Runs& runs, const Values& values, Errors& errors) {
  for (const FittedRun* run : runs) {
    const double seconds = accuracy::step_seconds(run->modelled, run->program, values);
    if (seconds > 0) errors[run->source].push_back(seconds / run->measured_seconds - 1);
  }
}

// The best of several starts: times have kinks, where another tile is taken or another stream is the last.
Values fit(const Runs& runs) {
  std::vector<std::size_t> free;
  for (std::size_t c = 0; c < accuracy::pace_constants().size(); ++c) {
    const PaceConstant& constant = accuracy::pace_constants()[c];
    if (std::any_of(runs.begin(), runs.end(),
                    [&](const FittedRun* run) { return accuracy::applies(constant, run->modelled); })) {
      free.push_back(c);
    }
  }
  Problem problem(runs, free);
  Values best_values;
  double best = 0;
  for (const double start : {1.0, 0.9, 0.8}) {
    Problem::InputType logarithms(problem.inputs());
    for (std::size_t f = 0; f < free.size(); ++f) {
      logarithms[static_cast<Eigen::Index>(f)] = std::log(start * accuracy::pace_constants()[free[f]].first);
    }
    Eigen::LevenbergMarquardt<Problem> method(problem);
    method.setXtol(1e-5);
    method.setFtol(1e-7);
    method.setFactor(1);
    method.minimize(logarithms);
    if (best_values.empty() || method.fnorm() < best) {
      best = method.fnorm();
      best_values = problem.values_of(logarithms);
    }
  }
  return best_values;
}

void show(const char* what, Errors errors) {
  std::vector<double> all;
  for (const auto& [name, source] : errors) all.insert(all.end(), source.begin(), source.end());
  errors["all"] = all;
  for (const auto& [name, source] : errors) {
    const accuracy::ErrorStatistics statistics = accuracy::error_statistics(source);
    fmt::print(
        "{:<12}{:<22}{:>4} runs, error: median {:5.1f}, mean {:5.1f}, 90 % within {:5.1f} %, bias {:+6.1f} "
        "%\n",
        what, name, statistics.runs, 100 * statistics.median, 100 * statistics.mean,
        100 * statistics.percentile_90, 100 * statistics.bias);
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
  Runs all, evidence;
  std::array<Runs, accuracy::kFolds> in_fold, others;
  for (const FittedRun& run : runs) {
    all.push_back(&run);
    if (run.is_evidence) evidence.push_back(&run);
    // What is no evidence is in no fold: it may be fitted to, and nothing is claimed of it.
    const std::size_t fold = run.is_evidence ? accuracy::fold_of(run.modelled) : accuracy::kFolds;
    for (std::size_t k = 0; k < accuracy::kFolds; ++k) (k == fold ? in_fold[k] : others[k]).push_back(&run);
  }
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // it takes minutes: lines as they come
  const Values values = fit(all);
  for (std::size_t c = 0; c < values.size(); ++c) {
    const PaceConstant& constant = accuracy::pace_constants()[c];
    fmt::print("{:<50}{:<20}{:.3g}\n",
               constant.engines.empty() ? constant.architecture
                                        : fmt::format("{}", fmt::join(constant.engines, ", ")),
               constant.name, values[c]);
  }
  Errors in_sample;
  add_errors(evidence, values, in_sample);
  show("in sample", in_sample);
  Errors held_out;
  for (std::size_t fold = 0; fold < accuracy::kFolds; ++fold) {
    const Values without = fit(others[fold]);
    fmt::print("without fold {}, {} of {} rows: {{{:.3g}}}\n", fold, others[fold].size(), all.size(),
               fmt::join(without, ", "));
    add_errors(in_fold[fold], without, held_out);
  }
  show("held out", held_out);
}
