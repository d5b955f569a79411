#include "reports/device_memory.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "planner/program/block_places.hpp"
#include "reports/keyed_table.hpp"
#include "reports/numbers.hpp"

namespace zeroplan::reports {
namespace {

using predict::Prediction;
using program::DeviceMemoryUse;
using program::Measurement;
using program::MemoryPoint;
using program::RankMeasurement;

constexpr double kTolerance = 0.01;
constexpr double kToleranceBytes = 200 * static_cast<double>(kMiB);

Bytes overhead(const Prediction& prediction, std::string_view name) {
  for (const predict::OverheadTerm& term : prediction.overheads) {
    if (term.name == name) return term.bytes;
  }
  return 0;
}

// Of the block that the program's buffers are in: with what lies between them while memory is observed, in whole granules of
// the driver.
Bytes arena_bytes(const Prediction& prediction, const RankMeasurement& rank) {
  const Bytes laid_out = program::block_sizes(prediction.program()).device;
  return round_up(laid_out + rank.device_zone_bytes, prediction.driver_granule);
}

// What a rank's device takes more of at a point than at the one before.
Bytes predicted_growth(const Prediction& prediction, const RankMeasurement& rank, MemoryPoint point) {
  switch (point) {
    case MemoryPoint::opened:
      return overhead(prediction, "context");
    case MemoryPoint::communicators:
      return overhead(prediction, "communicators");
    case MemoryPoint::arena:
      return arena_bytes(prediction, rank);
    case MemoryPoint::first_step:
      return overhead(prediction, "library_workspace") + overhead(prediction, "allocator");
    case MemoryPoint::last_step:
      break;
  }
  return 0;
}

Bytes counted(const DeviceMemoryUse& use) { return use.of_process > 0 ? use.of_process : use.used; }

const RankMeasurement* fullest(const Measurement& measurement) {
  const RankMeasurement* most = nullptr;
  if (measurement.ranks_of_device > 1) return most;
  for (const RankMeasurement& rank : measurement.of_rank) {
    if (rank.device_memory.back().total == 0) continue;
    if (most == nullptr || counted(rank.device_memory.back()) > counted(most->device_memory.back()))
      most = &rank;
  }
  return most;
}

std::string_view title_of(std::string_view point) {
  if (point == "opened") return "device opened";
  if (point == "communicators") return "communicators";
  if (point == "arena") return "buffers";
  return point == "first_step" ? "first step" : "last step";
}

}  // namespace

bool ran_on_gpus(const Measurement& measurement) { return fullest(measurement) != nullptr; }

std::vector<DeviceMemoryLine> device_memory(const Prediction& prediction, const Measurement& measurement) {
  std::vector<DeviceMemoryLine> lines;
  const RankMeasurement* rank = fullest(measurement);
  if (rank == nullptr) return lines;
  Bytes before = 0;
  for (std::size_t i = 0; i < program::kMemoryPoints; ++i) {
    const auto point = static_cast<MemoryPoint>(i);
    const Bytes used = counted(rank->device_memory.at(i));
    const DeviceMemoryUse& use = rank->device_memory.at(i);
    lines.push_back({point, used, used - before, predicted_growth(prediction, *rank, point), use.nvml_used,
                     use.of_process});
    before = used;
  }
  return lines;
}

std::optional<ComparedFigure> device_total(const Prediction& prediction, const Measurement& measurement) {
  const RankMeasurement* rank = fullest(measurement);
  std::set<std::int64_t> processes;
  for (const RankMeasurement& one : measurement.of_rank) processes.insert(one.process);
  const bool is_predicted = overhead(prediction, "context") > 0;  // the plan is for such a device
  if (rank == nullptr || !is_predicted || processes.size() < measurement.of_rank.size()) return std::nullopt;
  const auto predicted = static_cast<double>(prediction.peak_bytes);
  const double tolerance = std::max(kTolerance * predicted, kToleranceBytes);
  return ComparedFigure{"memory.device_total",
                        "device, with what runtimes take",
                        ComparedFigure::Kind::bytes,
                        predicted,
                        static_cast<double>(counted(rank->device_memory.back())),
                        tolerance,
                        tolerance};
}

Data device_memory_data(const std::vector<DeviceMemoryLine>& lines) {
  if (lines.empty()) return {};
  Data list = Data::list();
  for (const DeviceMemoryLine& line : lines) {
    list.add(Data::map()
                 .set("point", program::name_of(line.point))
                 .set("used_bytes", line.used)
                 .set("growth_bytes", line.growth)
                 .set("predicted_growth_bytes", line.predicted_growth)
                 .set("nvml_used_bytes", line.nvml_used > 0 ? Data(line.nvml_used) : Data())
                 .set("nvml_process_bytes", line.nvml_of_process > 0 ? Data(line.nvml_of_process) : Data()));
  }
  return list;
}

Table device_memory_table(const Data::List& lines) {
  std::vector<KeyedColumn> columns{
      {{"Memory of the device", false},
       {},
       {},
       [](const Data& row) -> Cell { return std::string(title_of(text_at(row, "point"))); }},
      {{"predicted more"}, "predicted_growth_bytes"},
      {{"measured more"}, "growth_bytes"},
      {{"in all"}, "used_bytes"}};
  const auto known = [&](const char* key) {
    return std::any_of(lines.begin(), lines.end(),
                       [key](const Data& row) { return !row.find(key)->is_null(); });
  };
  if (known("nvml_used_bytes")) columns.push_back({{"NVML: device"}, "nvml_used_bytes"});
  if (known("nvml_process_bytes")) columns.push_back({{"NVML: process"}, "nvml_process_bytes"});
  return table_of(lines, columns);
}

}  // namespace zeroplan::reports
