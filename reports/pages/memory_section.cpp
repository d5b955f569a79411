#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "reports/charts.hpp"
#include "reports/command_line.hpp"
#include "reports/figures.hpp"
#include "reports/keyed_table.hpp"
#include "reports/numbers.hpp"
#include "reports/pages/sections.hpp"

namespace zeroplan::reports {
namespace {

constexpr std::size_t kLevelsShown = 300;
constexpr double kMilli = 1e-3;

double gibibytes(double bytes) { return bytes / static_cast<double>(kGiB); }

Data categories_of(const predict::Prediction& prediction) {
  return category_data(prediction.memory().at_peak).set("overhead", prediction.overhead_bytes);
}

Data capacities(const describe::Capacity& capacity, const predict::Prediction& prediction) {
  Data list = Data::list();
  const auto add = [&](const char* name, const std::optional<describe::Figure>& figure) {
    if (figure)
      list.add(Data::map().set("name", name).set("bytes", figure->value).set("source", figure->source));
  };
  add("as sold", capacity.brochure_bytes);
  add("as NVML counts it", capacity.nvml_bytes);
  add("as a CUDA program gets it", capacity.cuda_bytes);
  list.add(Data::map()
               .set("name", "for this plan")
               .set("bytes", prediction.capacity_bytes)
               .set("source", prediction.capacity_basis));
  return list;
}

Data stage_data(const solve::Strategy& strategy, const PlanPage& page) {
  Data row = Data::map();
  row.set("name", strategy.name).set("possible", strategy.prediction.has_value());
  if (!strategy.prediction) return row.set("reason", strategy.not_possible);
  const PredictedPlan plan{page.fit.model, *strategy.resolved, *strategy.prediction, page.fit.goal};
  const auto figure = [&](const char* key) { return figure_of(key).read(plan); };
  return row.set("verdict", figure("verdict"))
      .set("peak_bytes", figure("peak_bytes"))
      .set("by_category_bytes", categories_of(*strategy.prediction))
      .set("step_seconds", figure("step_seconds"))
      .set("tokens_per_second", figure("tokens_per_second"))
      .set("traffic_psi", figure("traffic_psi"))
      .set("command",
           command_line("report", page.fit.model_argument, page.fit.hardware_argument, strategy.options));
}

// The highest of so many equal parts of the step, so that no peak is lost and the page stays small.
Data over_step(const predict::Trace& trace) {
  Data list = Data::list();
  if (trace.memory.empty() || trace.step_seconds <= 0) return list;
  std::vector<const predict::MemoryMoment*> shown;
  std::size_t last_part = kLevelsShown;
  for (const predict::MemoryMoment& moment : trace.memory) {
    const auto part =
        static_cast<std::size_t>(moment.seconds / trace.step_seconds * static_cast<double>(kLevelsShown - 1));
    if (part != last_part) {
      shown.push_back(&moment);
    } else if (moment.bytes() > shown.back()->bytes()) {
      shown.back() = &moment;
    }
    last_part = part;
  }
  for (const predict::MemoryMoment* moment : shown) {
    list.add(Data::map()
                 .set("seconds", moment->seconds)
                 .set("phase", std::string(program::name_of(moment->phase)))
                 .set("layer", moment->layer < 0 ? Data() : Data(moment->layer))
                 .set("micro_batch", moment->micro_batch)
                 .set("bytes", moment->bytes())
                 .set("by_category_bytes", category_data(moment->held)));
  }
  return list;
}

void add_stages(std::vector<Block>& blocks, const Data& data, const std::string& own) {
  std::vector<Bar> bars;
  std::string alternative;
  for (const Data& row : list_at(data, "stages")) {
    const Data* categories = row.find("by_category_bytes");
    if (categories == nullptr) continue;
    const std::string name = text_at(row, "name") + (text_at(row, "name") == own ? " (this plan)" : "");
    for (const Shade& shade : memory_shades())
      bars.push_back({name, shade.name, gibibytes(number_at(*categories, shade.name)), {}});
    alternative += fmt::format("{}{}: {:.2f} GiB", alternative.empty() ? "" : ", ", name,
                               gibibytes(number_at(row, "peak_bytes")));
  }
  std::vector<Mark> marks;
  for (const Data& capacity : list_at(data, "capacities"))
    marks.push_back({gibibytes(number_at(capacity, "bytes")), ""});
  if (!marks.empty()) marks = {{marks.back().value, "capacity"}};
  std::vector<KeyedColumn> columns{{{"at the peak, GiB", false}, "name"}};
  for (const Shade& shade : memory_shades()) {
    const std::string key = "by_category_bytes." + shade.name;
    const auto& rows = list_at(data, "stages");
    const bool any = std::any_of(rows.begin(), rows.end(), [&](const Data& row) {
      return row.find("by_category_bytes") != nullptr && number_at(row, key) > 0;
    });
    if (any) columns.push_back({{spaced(shade.name)}, key, kGibibytes});
  }
  columns.push_back({{"peak"}, "peak_bytes", kGibibytes});
  columns.push_back({{"DP Psi"}, "traffic_psi", decimals(2)});
  columns.push_back({{"step s"}, "step_seconds", kSignificant});
  columns.push_back({{"tokens/s"}, "tokens_per_second", kSignificant});
  blocks.emplace_back(chart_of("Memory per GPU at the peak, by category, for each stage of ZeRO",
                               alternative + ".", bars_chart(bars, memory_shades(), marks, "GiB"),
                               table_of(list_at(data, "stages"), columns,
                                        [](const Data& row) { return *row.find("possible")->as<bool>(); })));
  for (const Data& row : list_at(data, "stages")) {
    if (!*row.find("possible")->as<bool>()) {
      blocks.emplace_back(
          Paragraph{fmt::format("{} is not possible: {}.", text_at(row, "name"), text_at(row, "reason"))});
    }
  }
}

void add_over_step(std::vector<Block>& blocks, const Data& data, const Data& result) {
  const Data::List& moments = list_at(data, "over_step");
  if (moments.empty()) return;
  const double end = number_at(result, "step_seconds");
  const bool in_seconds = end >= 1;
  const double unit = in_seconds ? 1 : kMilli, overhead = number_at(result, "by_category_bytes.overhead");
  std::vector<Level> levels;
  const Data* highest = &moments.front();
  for (const Data& moment : moments) {
    Level level{number_at(moment, "seconds") / unit, {}};
    for (const Shade& shade : memory_shades()) {
      const double bytes =
          shade.name == "overhead" ? overhead : number_at(moment, "by_category_bytes." + shade.name);
      level.values.push_back(static_cast<std::int64_t>(bytes));
    }
    levels.push_back(std::move(level));
    if (number_at(moment, "bytes") > number_at(*highest, "bytes")) highest = &moment;
  }
  const double peak = number_at(*highest, "bytes") + overhead;
  const std::string layer =
      highest->find("layer")->is_null() ? "" : fmt::format(", layer {}", number_at(*highest, "layer"));
  const std::string name =
      fmt::format("peak {:.2f} GiB, {}{}", gibibytes(peak), text_at(*highest, "phase"), layer);
  Table table{{{"phase", false}, {"from, % of the step"}, {"highest GiB"}}, {}, {}};
  std::string phase;
  for (const Data& moment : moments) {
    const double bytes = number_at(moment, "bytes") + overhead;
    if (text_at(moment, "phase") != phase) {
      phase = text_at(moment, "phase");
      table.rows.push_back({phase, Percent{number_at(moment, "seconds") / end}, Gibibytes{bytes}});
    } else if (bytes > std::get<Gibibytes>(table.rows.back()[2]).bytes) {
      table.rows.back()[2] = Gibibytes{bytes};
    }
  }
  blocks.emplace_back(chart_of(
      "Memory over the step", "The " + name + ". Each level is the highest of a three-hundredth of the step.",
      levels_chart(levels, end / unit, memory_shades(),
                   {{gibibytes(number_at(result, "capacity_bytes")), "capacity"}}, {gibibytes(peak), name},
                   number_at(*highest, "seconds") / unit, in_seconds ? "s" : "ms", "GiB", kGiB),
      std::move(table)));
}

}  // namespace

Data memory_data(const PlanPage& page) {
  Data stages = Data::list();
  for (const solve::Strategy& strategy : page.stages) stages.add(stage_data(strategy, page));
  return Data::map()
      .set("capacities", capacities(page.fit.resolved.cluster.device->capacity, page.fit.prediction))
      .set("stages", std::move(stages))
      .set("over_step", over_step(page.trace));
}

void add_memory(std::vector<Block>& blocks, const PlanPage& page, const Data& data) {
  const Data& memory = *data.find("memory");
  blocks.emplace_back(Heading{"Memory"});
  add_stages(blocks, memory, fmt::format("ZeRO-{}", page.fit.resolved.plan.zero_stage));
  add_over_step(blocks, memory, *data.find("result"));
  blocks.emplace_back(table_of(
      list_at(memory, "capacities"),
      {{{"Capacity of a GPU", false}, "name"}, {{"GiB"}, "bytes", kGibibytes}, {{"from", false}, "source"}}));
}

}  // namespace zeroplan::reports
