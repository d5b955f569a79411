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

  bool has(ChangeKind kind) const {
    return std::any_of(steps.begin(), steps.end(), [kind](const Step& step) { return step.kind == kind; });
  }

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

// Of a model without a shape no yes can be had: there it is that nothing else is missing.
bool is_yes(const predict::Prediction& prediction) {
  if (!prediction.program().states_only) return prediction.fits();
  return !prediction.does_not_fit() && predict::host_holds(prediction).value_or(false);
}

bool lacks_host_memory(const Suggestion& suggestion) {
  return std::any_of(suggestion.missing.begin(), suggestion.missing.end(),
                     [](const predict::Missing& missing) { return missing.key == predict::kHostMemory; });
}

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
    Suggestion suggestion;
    suggestion.options = options_for(change.plan, start.plan, options);
    suggestion.what = change.what;
    suggestion.cost = change.cost;
    try {
      const describe::ResolvedPlan resolved = describe::resolve_plan(suggestion.options, model, hardware);
      suggestion.options = as_on_command_line(suggestion.options, resolved.plan);
      const predict::Prediction prediction = predict::predict(model, resolved.plan, resolved.cluster);
      suggestion.peak_bytes = prediction.peak_bytes;
      suggestion.capacity_bytes = prediction.capacity_bytes;
      if (prediction.memory().host_peak > 0) suggestion.host_bytes_per_node = prediction.host_bytes_per_node;
      suggestion.missing = prediction.missing;
      if (!prediction.does_not_fit()) return suggestion;
    } catch (const ConfigurationError&) {
      return std::nullopt;
    }
    return std::nullopt;
  }

  // The smallest change of each kind that fits alone, or may.
  std::vector<Suggestion> singles(std::size_t limit) const {
    std::vector<Suggestion> found;
    for (int kind = 0; kind < kChangeKinds && found.size() < limit; ++kind) {
      for (const Change& change : changes(static_cast<ChangeKind>(kind), start.plan, start.cluster)) {
        const std::optional<predict::Prediction> prediction = try_plan(change.plan);
        if (!prediction || prediction->does_not_fit()) continue;
        if (std::optional<Suggestion> suggestion = confirmed(change)) {
          found.push_back(std::move(*suggestion));
          break;
        }
      }
    }
    return found;
  }

  // Takes of each of `kinds`, in their order, the first change that makes the plan fit, else the one that
  // leaves the lowest peak; a kind that does not lower the peak is left out, and so is what the host's memory
  // does not hold. `with_unknown_host`: memory that is not described is taken to be enough.
  Combination climb(const std::vector<ChangeKind>& kinds, Bytes start_peak, bool with_unknown_host) const {
    Combination combination{start.plan, {}, start_peak, false};
    // What did not lower the peak may do so when another change has moved it.
    for (bool goes_on = true; goes_on && !combination.fits;) {
      goes_on = false;
      for (const ChangeKind kind : kinds) {
        if (combination.has(kind)) continue;
        std::optional<Change> best;
        for (Change& change : changes(kind, combination.plan, start.cluster)) {
          const std::optional<predict::Prediction> prediction = try_plan(change.plan);
          if (!prediction || prediction->peak_bytes >= combination.peak) continue;
          if (!predict::host_holds(*prediction).value_or(with_unknown_host)) continue;
          combination.peak = prediction->peak_bytes;
          combination.fits = with_unknown_host ? !prediction->does_not_fit() : is_yes(*prediction);
          best = std::move(change);
          if (combination.fits) break;
        }
        goes_on = goes_on || best;
        if (best) combination.take(kind, std::move(*best));
        if (combination.fits) break;
      }
    }
    return combination;
  }

  // Climbs until the plan fits, then leaves out every kind that it fits without, the costliest first.
  std::optional<Suggestion> combination(Bytes start_peak, bool with_unknown_host) const {
    std::vector<ChangeKind> kinds;
    kinds.reserve(kChangeKinds);
    for (int kind = 0; kind < kChangeKinds; ++kind) kinds.push_back(static_cast<ChangeKind>(kind));
    Combination best = climb(kinds, start_peak, with_unknown_host);
    if (!best.fits) return std::nullopt;
    kinds.clear();
    kinds.reserve(best.steps.size());
    for (const Combination::Step& step : best.steps) kinds.push_back(step.kind);
    for (std::size_t i = kinds.size(); i-- > 0;) {
      std::vector<ChangeKind> fewer = kinds;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      Combination without = climb(fewer, start_peak, with_unknown_host);
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
  if (!prediction.does_not_fit()) return {};
  const Searcher searcher{model, options, hardware, start};
  std::vector<Suggestion> found = searcher.singles(limit);
  if (!std::all_of(found.begin(), found.end(), lacks_host_memory)) return found;
  for (const bool with_unknown_host : {false, true}) {
    if (with_unknown_host && !found.empty()) break;
    std::optional<Suggestion> together = searcher.combination(prediction.peak_bytes, with_unknown_host);
    if (!together) continue;
    if (found.size() == limit) found.pop_back();
    found.push_back(std::move(*together));
  }
  return found;
}

}  // namespace zeroplan::solve
