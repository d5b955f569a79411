#include "planner/solve/suggest.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "planner/solve/changes.hpp"

namespace zeroplan::solve {
namespace {

using describe::Plan;

// The changes made to a plan one after another, one of each kind at most.
struct Combination {
  struct Step {
    ChangeKind kind;
    std::string what;
    std::string cost;
  };
  Plan plan;
  std::vector<Step> steps;
  Bytes peak = 0;
  bool fits = false;

  void take(ChangeKind kind, Change change) {
    std::erase_if(steps, [kind](const Step& step) { return replaces(kind, step.kind); });
    steps.push_back({kind, std::move(change.what), std::move(change.cost)});
    plan = std::move(change.plan);
  }

  Change as_change() const {
    Change change{plan, "", ""};
    for (const Step& step : steps) {
      change.what += (change.what.empty() ? "" : ", ") + step.what;
      change.cost += (change.cost.empty() ? "" : ", ") + step.cost;
    }
    return change;
  }
};

struct Searcher {
  const describe::Model& model;
  const describe::PlanOptions& options;
  const std::string& hardware;
  const describe::ResolvedPlan& start;

  // Nothing when the plan breaks a rule.
  std::optional<predict::Prediction> try_plan(const Plan& plan) const {
    Problems problems;
    describe::check_plan(plan, model, problems);
    if (!problems.empty()) return std::nullopt;
    return predict::predict(model, plan, start.cluster);
  }

  // The change as the user would ask for it; nothing when the machine does not allow it or it does not fit
  // that way.
  std::optional<Suggestion> confirmed(const Change& change) const {
    Suggestion suggestion{options_for(change.plan, start.plan, options), change.what, change.cost, 0, 0};
    try {
      const describe::ResolvedPlan resolved = describe::resolve_plan(suggestion.options, model, hardware);
      suggestion.options = as_on_command_line(suggestion.options, resolved.plan);
      const predict::Prediction prediction = predict::predict(model, resolved.plan, resolved.cluster);
      suggestion.peak_bytes = prediction.peak_bytes;
      suggestion.capacity_bytes = prediction.capacity_bytes;
      if (prediction.fits()) return suggestion;
    } catch (const ConfigurationError&) {
      return std::nullopt;
    }
    return std::nullopt;
  }

  // The smallest change of each kind that fits alone.
  std::vector<Suggestion> singles(std::size_t limit) const {
    std::vector<Suggestion> found;
    for (int kind = 0; kind < kChangeKinds && found.size() < limit; ++kind) {
      for (const Change& change : changes(static_cast<ChangeKind>(kind), start.plan, start.cluster)) {
        const std::optional<predict::Prediction> prediction = try_plan(change.plan);
        if (!prediction || !prediction->fits()) continue;
        if (std::optional<Suggestion> suggestion = confirmed(change)) {
          found.push_back(std::move(*suggestion));
          break;
        }
      }
    }
    return found;
  }

  // Takes of each of `kinds`, in their order, the first change that makes the plan fit, else the one that
  // leaves the lowest peak; a kind that does not lower the peak is left out.
  Combination climb(const std::vector<ChangeKind>& kinds, Bytes start_peak) const {
    Combination combination{start.plan, {}, start_peak, false};
    for (const ChangeKind kind : kinds) {
      std::optional<Change> best;
      for (Change& change : changes(kind, combination.plan, start.cluster)) {
        const std::optional<predict::Prediction> prediction = try_plan(change.plan);
        if (!prediction || prediction->peak_bytes >= combination.peak) continue;
        combination.peak = prediction->peak_bytes;
        combination.fits = prediction->fits();
        best = std::move(change);
        if (combination.fits) break;
      }
      if (best) combination.take(kind, std::move(*best));
      if (combination.fits) break;
    }
    return combination;
  }

  // Climbs until the plan fits, then leaves out every kind that it fits without, the costliest first.
  std::optional<Suggestion> combination(Bytes start_peak) const {
    std::vector<ChangeKind> kinds;
    kinds.reserve(kChangeKinds);
    for (int kind = 0; kind < kChangeKinds; ++kind) kinds.push_back(static_cast<ChangeKind>(kind));
    Combination best = climb(kinds, start_peak);
    if (!best.fits) return std::nullopt;
    kinds.clear();
    kinds.reserve(best.steps.size());
    for (const Combination::Step& step : best.steps) kinds.push_back(step.kind);
    for (std::size_t i = kinds.size(); i-- > 0;) {
      std::vector<ChangeKind> fewer = kinds;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      Combination without = climb(fewer, start_peak);
      if (!without.fits) continue;
      best = std::move(without);
      kinds = std::move(fewer);
    }
    return confirmed(best.as_change());
  }
};

}  // namespace

std::vector<Suggestion> suggest(const describe::Model& model, const describe::PlanOptions& options,
                                const std::string& hardware, std::size_t limit) {
  const describe::ResolvedPlan start = describe::resolve_plan(options, model, hardware);
  const predict::Prediction prediction = predict::predict(model, start.plan, start.cluster);
  if (prediction.fits()) return {};
  const Searcher searcher{model, options, hardware, start};
  std::vector<Suggestion> found = searcher.singles(limit);
  if (!found.empty()) return found;
  if (std::optional<Suggestion> together = searcher.combination(prediction.peak_bytes)) {
    found.push_back(std::move(*together));
  }
  return found;
}

}  // namespace zeroplan::solve
