#include "planner/describe/plan/assumed_links.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace zeroplan::describe {
namespace {

using Entries = std::vector<const AttainedCollective*>;

std::string rates_text(const Entries& entries) {
  const auto less = [](const AttainedCollective* a, const AttainedCollective* b) {
    return a->busbw_gbytes_per_s.back() < b->busbw_gbytes_per_s.back();
  };
  const auto [low, high] = std::minmax_element(entries.begin(), entries.end(), less);
  const double least = (*low)->busbw_gbytes_per_s.back();
  const double most = (*high)->busbw_gbytes_per_s.back();
  return least == most ? fmt::format("{} GB/s", least) : fmt::format("{} to {} GB/s", least, most);
}

void add(std::vector<Assumption>& assumptions, std::string key, const std::string& machine,
         const Entries& entries) {
  if (entries.empty()) return;
  const AttainedCollective& first = *entries.front();
  std::string reason =
      fmt::format("of {}, not measured there: {}", machine, first.note.empty() ? first.source : first.note);
  if (!first.note.empty()) reason += fmt::format(" ({})", first.source);
  if (entries.size() > 1) {
    reason += fmt::format("; {} figures in all, zeroplan hw show {} has them", entries.size(), machine);
  }
  assumptions.push_back({std::move(key), rates_text(entries), std::move(reason)});
}

}  // namespace

std::vector<Assumption> assumed_links(const Plan& plan, const Cluster& cluster) {
  std::vector<Assumption> assumptions;
  if (!cluster.node) return assumptions;
  const std::int64_t per_node = cluster.devices_per_node;
  const std::int64_t tensor = std::min(plan.tensor_parallel, per_node);
  const std::int64_t data = std::min(plan.data_parallel, std::max<std::int64_t>(1, per_node / tensor));
  Entries network, links;
  const auto take = [&](const AttainedCollective& entry) {
    if (!entry.assumed) return;
    if (entry.nodes > 1 && cluster.nodes > 1) network.push_back(&entry);
    const bool is_of_a_group = entry.devices > 1 && (entry.devices == tensor || entry.devices == data);
    if (entry.nodes == 1 && is_of_a_group) links.push_back(&entry);
  };
  for (const AttainedCollective& entry : cluster.node->attained_collectives) take(entry);
  for (const AttainedCollective& entry : cluster.device->attained_collectives) take(entry);
  add(assumptions, "network", cluster.node->name, network);
  add(assumptions, "links", cluster.device->name, links);
  return assumptions;
}

}  // namespace zeroplan::describe
