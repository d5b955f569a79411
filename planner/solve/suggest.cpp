#include "planner/solve/suggest.hpp"

#include <optional>
#include <utility>

#include "planner/solve/changes.hpp"

namespace zeroplan::solve {
namespace {

using describe::Model;
using describe::PlanOptions;
using describe::ResolvedPlan;

struct Tried {
  ResolvedPlan resolved;
  predict::Prediction prediction;
};

// Nothing when the plan breaks a rule.
std::optional<Tried> try_options(const Model& model, const PlanOptions& options,
                                 const std::string& hardware) {
  try {
    ResolvedPlan resolved = describe::resolve_plan(options, model, hardware);
    predict::Prediction prediction = predict::predict(model, resolved.plan, resolved.cluster);
    return Tried{std::move(resolved), std::move(prediction)};
  } catch (const ConfigurationError&) {
    return std::nullopt;
  }
}

struct Searcher {
  const Model& model;
  const std::string& hardware;

  std::optional<Suggestion> fitting(const Change& change) const {
    const std::optional<Tried> tried = try_options(model, change.options, hardware);
    if (!tried || !tried->prediction.fits()) return std::nullopt;
    return Suggestion{change.options, change.what, change.cost, tried->prediction.peak_bytes,
                      tried->prediction.capacity_bytes};
  }

  // The smallest change of each kind that fits alone.
  std::vector<Suggestion> singles(const PlanOptions& options, const ResolvedPlan& start,
                                  std::size_t limit) const {
    std::vector<Suggestion> found;
    for (int kind = 0; kind < kChangeKinds && found.size() < limit; ++kind) {
      for (const Change& change : changes(static_cast<ChangeKind>(kind), options, start)) {
        if (std::optional<Suggestion> suggestion = fitting(change)) {
          found.push_back(std::move(*suggestion));
          break;
        }
      }
    }
    return found;
  }

  // Climbs from kind to kind, cheapest first, keeping the change of each kind that leaves the lowest peak,
  // until the plan fits. A kind that does not lower the peak is left out.
  std::optional<Suggestion> combination(const PlanOptions& options, const ResolvedPlan& start,
                                        Bytes start_peak) const {
    Change combined{options, "", ""};
    ResolvedPlan resolved = start;
    Bytes peak = start_peak;
    for (int kind = 0; kind < kChangeKinds; ++kind) {
      std::optional<Change> best;
      std::optional<Tried> best_tried;
      for (Change& change : changes(static_cast<ChangeKind>(kind), combined.options, resolved)) {
        std::optional<Tried> tried = try_options(model, change.options, hardware);
        if (!tried || tried->prediction.peak_bytes >= peak) continue;
        peak = tried->prediction.peak_bytes;
        best = std::move(change);
        const bool fits = tried->prediction.fits();
        best_tried = std::move(tried);
        if (fits) break;
      }
      if (!best) continue;
      combined.options = best->options;
      combined.what += (combined.what.empty() ? "" : ", ") + best->what;
      combined.cost += (combined.cost.empty() ? "" : ", ") + best->cost;
      resolved = std::move(best_tried->resolved);
      if (best_tried->prediction.fits()) {
        return Suggestion{combined.options, combined.what, combined.cost, best_tried->prediction.peak_bytes,
                          best_tried->prediction.capacity_bytes};
      }
    }
    return std::nullopt;
  }
};

}  // namespace

std::vector<Suggestion> suggest(const Model& model, const PlanOptions& options, const std::string& hardware,
                                std::size_t limit) {
  const std::optional<Tried> start = try_options(model, options, hardware);
  if (!start || start->prediction.fits()) return {};
  const Searcher searcher{model, hardware};
  std::vector<Suggestion> found = searcher.singles(options, start->resolved, limit);
  if (!found.empty()) return found;
  if (std::optional<Suggestion> together =
          searcher.combination(options, start->resolved, start->prediction.peak_bytes)) {
    found.push_back(std::move(*together));
  }
  return found;
}

}  // namespace zeroplan::solve
