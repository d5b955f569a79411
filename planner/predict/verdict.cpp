#include "planner/predict/verdict.hpp"

#include <fmt/format.h>

#include <utility>

#include "planner/predict/prediction.hpp"

namespace zeroplan::predict {
namespace {

using describe::Cluster;

constexpr double kTightFraction = 0.95;

double gib(Bytes bytes) { return static_cast<double>(bytes) / static_cast<double>(kGiB); }

// The engine's factor is the most that was seen, its states the least.
std::string host_needed(const MemoryNeed& need) {
  const double least = gib(need.host_per_node_least);
  const double most = gib(need.host_per_node);
  if (need.host_per_node_least == need.host_per_node) {
    return fmt::format("{:.1f} GiB", most);
  }
  return fmt::format("{:.1f} to {:.1f} GiB", least, most);
}

std::vector<Missing> missing_of(const Prediction& prediction, const Cluster& cluster) {
  std::vector<Missing> missing;
  if (prediction.need.is_lower_bound) {
    missing.push_back({std::string(kShape),
                       fmt::format("the model's shape is not known, so its activations and logits are not: "
                                   "{:.2f} GiB of {:.2f} GiB are the least that it takes",
                                   gib(prediction.need.peak), gib(prediction.need.capacity)),
                       "name a model, a config.json or a model file, or give layers=, hidden=, heads= and "
                       "vocab= instead of params="});
  }
  if (!host_holds(prediction)) {
    missing.push_back(
        {std::string(kHostMemory),
         fmt::format("the host memory of a node of {} is not described, and the plan keeps {} "
                     "a node there",
                     cluster.node ? cluster.node->name : cluster.name, host_needed(prediction.need)),
         "--host-memory SIZE, or host_memory_gib in the machine's file"});
  }
  return missing;
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::fits:
      return "fits";
    case Verdict::fits_tightly:
      return "fits_tightly";
    case Verdict::does_not_fit:
      return "does_not_fit";
    case Verdict::cannot_say:
      break;
  }
  return "cannot_say";
}

std::optional<bool> host_holds(const MemoryNeed& need) {
  if (!need.host_capacity) {
    // While a model is being loaded every plan uses some host memory; only what stays there counts.
    return need.host_states == 0 ? std::optional(true) : std::nullopt;
  }
  // Between the least and the most lies a matter of luck, and the middle decides.
  return (need.host_per_node_least + need.host_per_node) / 2 <= *need.host_capacity;
}

std::optional<bool> host_holds(const Prediction& prediction) { return host_holds(prediction.need); }

Verdict verdict_of(const MemoryNeed& need) {
  const std::optional<bool> holds = host_holds(need);
  if (need.peak > need.capacity || !holds.value_or(true)) return Verdict::does_not_fit;
  if (need.is_lower_bound || !holds) return Verdict::cannot_say;
  const bool host_is_tight = need.host_capacity && need.host_per_node > *need.host_capacity;
  const bool tight = static_cast<double>(need.peak) > kTightFraction * static_cast<double>(need.capacity);
  return tight || host_is_tight ? Verdict::fits_tightly : Verdict::fits;
}

Judgement judge(const Prediction& prediction, const Cluster& cluster) {
  const MemoryNeed& need = prediction.need;
  Judgement judgement{verdict_of(need), {}, {}};
  if (need.peak > need.capacity) {
    judgement.reason = fmt::format("{:.2f} GiB more than the {:.2f} GiB of one device",
                                   gib(need.peak - need.capacity), gib(need.capacity));
  } else if (judgement.verdict == Verdict::cannot_say) {
    judgement.missing = missing_of(prediction, cluster);
    for (const Missing& item : judgement.missing) {
      judgement.reason += (judgement.reason.empty() ? "" : "; ") + item.sentence;
    }
  } else if (need.host_capacity &&
             (judgement.verdict == Verdict::does_not_fit || need.host_per_node > *need.host_capacity)) {
    judgement.reason = fmt::format("{} of host memory a node, and it has {:.1f} GiB", host_needed(need),
                                   gib(*need.host_capacity));
  } else {
    const Bytes free = need.capacity - need.peak;
    judgement.reason = fmt::format("peak {:.2f} of {:.2f} GiB, {:.2f} GiB ({:.0f} %) free", gib(need.peak),
                                   gib(need.capacity), gib(free),
                                   100 * static_cast<double>(free) / static_cast<double>(need.capacity));
  }
  return judgement;
}

}  // namespace zeroplan::predict
