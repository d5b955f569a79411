#include "reports/measured_traffic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "planner/predict/links.hpp"
#include "reports/device_memory.hpp"
#include "reports/keyed_table.hpp"
#include "reports/numbers.hpp"

namespace zeroplan::reports {
namespace {

using program::Measurement;
using program::Op;

constexpr double kGiga = 1e9;
constexpr double kMega = 1e6;
constexpr double kMilli = 1e-3;

// GB/s, one direction; nothing where the run was not on such devices, or nobody described the link.
std::optional<double> link_rate(const program::Group& group, std::int64_t ranks,
                                const describe::Cluster& cluster, const Measurement& measurement) {
  if (!ran_on_gpus(measurement) || cluster.device->capacity.from_host_memory || !cluster.node)
    return std::nullopt;
  const predict::Placement place = predict::place_group(group, ranks, cluster);
  const auto& figure =
      place.nodes > 1 ? cluster.node->internode_gbytes_per_s : cluster.node->link_gbytes_per_s_per_device;
  if (!figure) return std::nullopt;
  return place.nodes > 1 ? figure->value / static_cast<double>(place.ranks_per_node * place.groups_sharing)
                         : figure->value;
}

const program::InstructionTime* time_of(const Measurement& measurement, Op op, program::GroupKind group) {
  const auto found = std::find_if(measurement.times.begin(), measurement.times.end(),
                                  [&](const auto& time) { return time.op == op && time.group == group; });
  return found == measurement.times.end() ? nullptr : &*found;
}

}  // namespace

Data traffic_data(const predict::Prediction& prediction, const describe::Cluster& cluster,
                  const Measurement& measurement) {
  Data list = Data::list();
  const auto steps = static_cast<double>(std::max<std::int64_t>(1, measurement.steps.measured()));
  for (std::size_t i = 0; i < prediction.program().groups.size(); ++i) {
    const program::Group& group = prediction.program().groups[i];
    for (const Op op : program::kCollectiveOps) {
      const std::size_t index = program::collective_index(op);
      double moved = 0;
      for (const program::RankMeasurement& rank : measurement.of_rank) {
        moved += static_cast<double>(rank.moved[i][index]) / static_cast<double>(measurement.of_rank.size());
      }
      const program::InstructionTime* time = time_of(measurement, op, group.kind);
      if (time == nullptr || measurement.of_rank.empty()) continue;
      const double seconds = (time->seconds - time->waiting_seconds) / steps;
      const auto link = link_rate(group, prediction.program().ranks, cluster, measurement);
      list.add(Data::map()
                   .set("group", program::name_of(group.kind))
                   .set("collective", program::name_of(op))
                   .set("calls", measurement.of_rank.front().collectives[i][index].calls)
                   .set("moved_bytes", moved)
                   .set("seconds", seconds)
                   .set("gbytes_per_s", seconds > 0 ? Data(moved / seconds / kGiga) : Data())
                   .set("link_gbytes_per_s", link ? Data(*link) : Data()));
    }
  }
  return list;
}

Table traffic_table(const Data::List& traffic) {
  std::vector<KeyedColumn> columns{{{"Traffic of a rank in a step", false},
                                    {},
                                    {},
                                    [](const Data& row) -> Cell {
                                      return spaced(text_at(row, "group") + " " + text_at(row, "collective"));
                                    }},
                                   {{"calls"}, "calls"},
                                   {{"MB moved"}, "moved_bytes", decimals(3, kMega)},
                                   {{"ms, without waiting"}, "seconds", decimals(2, kMilli)},
                                   {{"GB/s"}, "gbytes_per_s", kSignificant}};
  const bool has_links = std::any_of(traffic.begin(), traffic.end(), [](const Data& row) {
    return !row.find("link_gbytes_per_s")->is_null();
  });
  if (has_links) columns.push_back({{"GB/s of the link"}, "link_gbytes_per_s", kSignificant});
  return table_of(traffic, columns);
}

}  // namespace zeroplan::reports
