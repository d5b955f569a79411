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
std::string host_needed(const Prediction& prediction) {
  const double least = gib(prediction.host_bytes_per_node_least);
  const double most = gib(prediction.host_bytes_per_node);
  if (prediction.host_bytes_per_node_least == prediction.host_bytes_per_node) {
    return fmt::format("{:.1f} GiB", most);
  }
  return fmt::format("{:.1f} to {:.1f} GiB", least, most);
}

std::vector<Missing> missing_of(const Prediction& prediction, const Cluster& cluster) {
  std::vector<Missing> missing;
  if (prediction.program.states_only) {
    missing.push_back({std::string(kShape),
                       fmt::format("the model's shape is not known, so its activations and logits are not: "
                                   "{:.2f} GiB of {:.2f} GiB are the least that it takes",
                                   gib(prediction.peak_bytes), gib(prediction.capacity_bytes)),
                       "name a model, a config.json or a model file, or give layers=, hidden=, heads= and "
                       "vocab= instead of params="});
  }
  if (!host_holds(prediction)) {
    missing.push_back({std::string(kHostMemory),
                       fmt::format("the host memory of a node of {} is not described, and the plan keeps {} "
                                   "a node there",
                                   cluster.node ? cluster.node->name : cluster.name, host_needed(prediction)),
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

std::optional<bool> host_holds(const Prediction& prediction) {
  if (!prediction.host_capacity_bytes) {
    // While a model is being loaded every plan uses some host memory; only what stays there counts.
    return prediction.memory.host_peak == 0 ? std::optional(true) : std::nullopt;
  }
  // Between the least and the most lies a matter of luck, and the middle decides.
  const Bytes middle = (prediction.host_bytes_per_node_least + prediction.host_bytes_per_node) / 2;
  return middle <= *prediction.host_capacity_bytes;
}

Judgement judge(const Prediction& prediction, const Cluster& cluster) {
  const Bytes peak = prediction.peak_bytes;
  const Bytes capacity = prediction.capacity_bytes;
  if (peak > capacity) {
    return {
        Verdict::does_not_fit,
        fmt::format("{:.2f} GiB more than the {:.2f} GiB of one device", gib(peak - capacity), gib(capacity)),
        {}};
  }
  const std::optional<Bytes> host = prediction.host_capacity_bytes;
  const auto host_reason = [&] {
    return fmt::format("{} of host memory a node, and it has {:.1f} GiB", host_needed(prediction),
                       gib(*host));
  };
  if (!host_holds(prediction).value_or(true)) return {Verdict::does_not_fit, host_reason(), {}};
  if (std::vector<Missing> missing = missing_of(prediction, cluster); !missing.empty()) {
    std::string reason;
    for (const Missing& item : missing) reason += (reason.empty() ? "" : "; ") + item.sentence;
    return {Verdict::cannot_say, std::move(reason), std::move(missing)};
  }
  if (host && prediction.host_bytes_per_node > *host) return {Verdict::fits_tightly, host_reason(), {}};
  const bool tight = static_cast<double>(peak) > kTightFraction * static_cast<double>(capacity);
  return {tight ? Verdict::fits_tightly : Verdict::fits,
          fmt::format("peak {:.2f} of {:.2f} GiB, {:.2f} GiB ({:.0f} %) free", gib(peak), gib(capacity),
                      gib(capacity - peak),
                      100 * static_cast<double>(capacity - peak) / static_cast<double>(capacity)),
          {}};
}

}  // namespace zeroplan::predict
