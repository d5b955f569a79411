#include "reports/gpu_samples.hpp"

#include <fmt/format.h>

#include <array>

#include "reports/keyed_table.hpp"
#include "reports/numbers.hpp"

namespace zeroplan::reports {
namespace {

using program::GpuSamples;

constexpr double kPercents = 100;

template <class Number>
Data known(Number value) {
  return value > 0 ? Data(value) : Data();
}

double share(std::int64_t part, std::int64_t of) {
  return of > 0 ? static_cast<double>(part) / static_cast<double>(of) : 0;
}

struct GpuRow {
  const char* title = "";
  const char* unit = "";
  const char* key = "";
  CellFormat format{};
};
constexpr std::array<GpuRow, 7> kRows{{{"SM clock, median", "MHz", "sm_clock_mhz", kPlain},
                                       {"SM clock, highest possible", "MHz", "most_sm_clock_mhz", kPlain},
                                       {"memory clock, median", "MHz", "memory_clock_mhz", kPlain},
                                       {"power, mean", "W", "power_watts", decimals(0)},
                                       {"power limit", "W", "power_limit_watts", decimals(0)},
                                       {"temperature, highest", "C", "temperature_celsius", kPlain},
                                       {"clocks held back", "% of samples", "held_back_share", kPercent}}};

}  // namespace

Data gpu_samples_data(const GpuSamples& samples) {
  if (samples.count == 0) return {};
  Data reasons = Data::list();
  for (std::size_t i = 0; i < kClockReasons.size(); ++i) {
    const std::int64_t count = samples.with_reason.at(i);
    if (count == 0) continue;
    reasons.add(
        Data::map().set("reason", kClockReasons.at(i).words).set("share", share(count, samples.count)));
  }
  return Data::map()
      .set("samples", samples.count)
      .set("interval_seconds", samples.interval_seconds)
      .set("sm_clock_mhz", known(samples.sm_clock_mhz))
      .set("lowest_sm_clock_mhz", known(samples.lowest_sm_clock_mhz))
      .set("most_sm_clock_mhz", known(samples.most_sm_clock_mhz))
      .set("memory_clock_mhz", known(samples.memory_clock_mhz))
      .set("most_memory_clock_mhz", known(samples.most_memory_clock_mhz))
      .set("power_watts", known(samples.power_watts))
      .set("highest_power_watts", known(samples.highest_power_watts))
      .set("power_limit_watts", known(samples.power_limit_watts))
      .set("temperature_celsius", known(samples.temperature_celsius))
      .set("held_back_share", share(samples.held_back, samples.count))
      .set("reasons", std::move(reasons));
}

Data slowest_gpu_data(const program::Measurement& measurement) {
  const GpuSamples* slowest = nullptr;
  for (const program::RankMeasurement& rank : measurement.of_rank) {
    if (rank.gpu.count == 0) continue;
    if (slowest == nullptr || rank.gpu.sm_clock_mhz < slowest->sm_clock_mhz) slowest = &rank.gpu;
  }
  return slowest == nullptr ? Data() : gpu_samples_data(*slowest);
}

void add_gpu_rows(Table& table, const Data& gpu, std::size_t columns, std::size_t measured) {
  if (gpu.is_null()) return;
  for (const GpuRow& row : kRows) {
    if (gpu.find(row.key)->is_null()) continue;
    std::vector<Cell> cells(columns);
    cells[0] = std::string(row.title);
    cells[1] = std::string(row.unit);
    cells[measured] = cell_at(gpu, row.key, row.format);
    table.rows.push_back(std::move(cells));
  }
}

std::string clocks_text(const Data& gpu) {
  const auto percents = [](double of) { return fmt::format("{:.0f} %", kPercents * of); };
  std::string reasons;
  for (const Data& reason : list_at(gpu, "reasons")) {
    reasons += fmt::format("{}{} in {}", reasons.empty() ? ": " : ", ", text_at(reason, "reason"),
                           percents(number_at(reason, "share")));
  }
  const auto samples = static_cast<std::int64_t>(number_at(gpu, "samples"));
  return fmt::format("In {} of {}, one every {:g} s beside the steps, the clocks were held back{}.",
                     percents(number_at(gpu, "held_back_share")), counted(samples, "sample"),
                     number_at(gpu, "interval_seconds"), reasons);
}

}  // namespace zeroplan::reports
