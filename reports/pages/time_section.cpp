#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "reports/charts.hpp"
#include "reports/keyed_table.hpp"
#include "reports/pages/sections.hpp"
#include "reports/speed.hpp"

namespace zeroplan::reports {
namespace {

using predict::TraceEvent;

constexpr double kMilli = 1e-3, kMicro = 1e-6;

// Parts of a step, from what could not be less to all of it.
struct Part {
  std::string_view name, key, what, color;
};
constexpr std::array<Part, 8> kParts{
    {{"model FLOPs at peak", "mfu", "what the model's FLOPs take at the GPU's peak", "#4e9a5b"},
     {"recomputation", "hfu", "FLOPs that are done a second time, at the peak", "#8a6bb1"},
     {"below the peak", "exposed_seconds.compute",
      "kernels that do not reach the peak, and those without FLOPs", "#4878b0"},
     {"optimizer", "exposed_seconds.optimizer", "kernels of the update", "#a8893a"},
     {"data-parallel traffic", "exposed_seconds.data_parallel", "that nothing hides", "#d98032"},
     {"tensor-parallel traffic", "exposed_seconds.tensor_parallel", "that nothing hides", "#b9505a"},
     {"host copies", "exposed_seconds.host_copies", "that nothing hides", "#c4699b"},
     {"launch gaps", "exposed_seconds.launch_gaps", "between kernels", "#7f7f7f"}}};

Data waterfall(const Data& result) {
  Data list = Data::list();
  const double step = number_at(result, kStepSeconds);
  if (step <= 0) return list;
  const double ideal = step * number_at(result, "mfu"), executed = step * number_at(result, "hfu");
  for (const Part& part : kParts) {
    double seconds = 0;
    if (part.key == "mfu") {
      seconds = ideal;
    } else if (part.key == "hfu") {
      seconds = executed - ideal;
    } else if (part.key == "exposed_seconds.compute") {
      seconds = number_at(result, part.key) - executed;
    } else {
      seconds = number_at(result, part.key);
    }
    list.add(Data::map()
                 .set("name", part.name)
                 .set("explain", part.key)
                 .set("what", part.what)
                 .set("seconds", seconds));
  }
  return list;
}

std::string_view lane_of(program::Stream stream) {
  using program::Stream;
  switch (stream) {
    case Stream::compute:
      return "kernels";
    case Stream::communication:
      return "data parallel";
    case Stream::tensor:
      return "tensor parallel";
    case Stream::to_host:
      return "to the host";
    case Stream::to_device:
      return "from the host";
    case Stream::host:
      return "host";
    case Stream::input:
      break;
  }
  return "input";
}

std::string_view kind_of(const TraceEvent& event) {
  if (event.group)
    return *event.group == program::GroupKind::tensor_parallel ? "tensor-parallel traffic"
                                                               : "data-parallel traffic";
  return event.recomputed ? "recomputation" : event.stream == program::Stream::compute ? "kernels" : "copies";
}
const std::vector<Shade>& kind_shades() {
  static const std::vector<Shade> shades{{"kernels", "#4878b0"},
                                         {"recomputation", "#8a6bb1"},
                                         {"data-parallel traffic", "#d98032"},
                                         {"tensor-parallel traffic", "#b9505a"},
                                         {"copies", "#c4699b"}};
  return shades;
}

// What runs from the end of the layer's neighbour to the end of the layer itself, in the first micro-batch.
Data layer_spans(const predict::Trace& trace, std::int64_t layer, program::Phase phase) {
  Data list = Data::list();
  const std::int64_t before = phase == program::Phase::forward ? layer - 1 : layer + 1;
  double begin = 0, end = 0;
  for (const TraceEvent& event : trace.events) {
    const bool counts =
        event.stream == program::Stream::compute && event.phase == phase && event.micro_batch == 0;
    if (!counts) continue;
    if (event.layer == before) begin = std::max(begin, event.start_seconds + event.seconds);
    if (event.layer == layer) end = std::max(end, event.start_seconds + event.seconds);
  }
  for (const TraceEvent& event : trace.events) {
    const double from = std::max(event.start_seconds, begin);
    const double to = std::min(event.start_seconds + event.seconds, end);
    if (to <= from) continue;
    list.add(Data::map()
                 .set("stream", lane_of(event.stream))
                 .set("name", event.name)
                 .set("kind", kind_of(event))
                 .set("start_seconds", from - begin)
                 .set("end_seconds", to - begin));
  }
  return list;
}

void add_waterfall(std::vector<Block>& blocks, const Data& data) {
  const Data::List& parts = list_at(data, "time.waterfall");
  if (parts.empty()) return;
  const double step = number_at(data, "result.step_seconds");
  const double unit = step >= 1 ? 1 : kMilli;
  std::vector<Bar> bars;
  std::vector<Shade> shades;
  double start = 0;
  Table table{{{"part of the step", false},
               {step >= 1 ? "s" : "ms"},
               {"% of the step"},
               {"", false},
               {"zeroplan explain", false}},
              {},
              {}};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const double seconds = number_at(parts[i], "seconds");
    if (std::abs(seconds) < 0.0005 * step) continue;
    const std::string name = text_at(parts[i], "name");
    shades.push_back({name, std::string(kParts[i].color)});
    bars.push_back({name, name, seconds / unit, start / unit});
    start += seconds;
    table.rows.push_back({name, four_digits(seconds / unit, step / unit), Percent{seconds / step},
                          text_at(parts[i], "what"), text_at(parts[i], "explain")});
  }
  table.rules_before = {table.rows.size()};
  table.rows.push_back({std::string("step"), four_digits(step / unit, step / unit), Percent{1}, std::string(),
                        std::string(kStepSeconds)});
  shades.push_back({"step", "#57606a"});
  bars.push_back({"step", "step", step / unit, 0.0});
  const std::string alternative =
      fmt::format("Of {:.4g} {} a step, {:.1f} % are what the model's FLOPs would take at the GPU's peak.",
                  step / unit, step >= 1 ? "s" : "ms", 100 * number_at(parts.front(), "seconds") / step);
  blocks.emplace_back(chart_of("Where the time of a step goes", alternative,
                               bars_chart(bars, shades, {}, step >= 1 ? "s" : "ms"), std::move(table)));
}

void add_layer(std::vector<Block>& blocks, const Data& data, const std::string& phase) {
  const Data::List& events = list_at(data, "time.layer." + phase);
  if (events.empty()) return;
  std::vector<Span> spans;
  std::vector<std::string> lanes;
  double kernels = 0, end = 0;
  for (const Data& event : events) {
    const std::string lane = text_at(event, "stream");
    if (std::find(lanes.begin(), lanes.end(), lane) == lanes.end()) lanes.push_back(lane);
    const double from = number_at(event, "start_seconds"), to = number_at(event, "end_seconds");
    spans.push_back({lane, text_at(event, "name"), text_at(event, "kind"), from / kMicro, to / kMicro});
    if (lane == "kernels") kernels += to - from;
    end = std::max(end, to);
  }
  const Table table = table_of(events, {{{"runs", false}, "name"},
                                        {{"on", false}, "stream"},
                                        {{"from us"}, "start_seconds", decimals(1, kMicro)},
                                        {{"to us"}, "end_seconds", decimals(1, kMicro)}});
  blocks.emplace_back(chart_of(
      fmt::format("One layer's {}, by stream", phase),
      fmt::format("{:.4g} ms, in which kernels run for {:.1f} %.", end / kMilli, 100 * kernels / end),
      spans_chart(spans, lanes, kind_shades(), "us"), table));
}

}  // namespace

Data time_data(const PlanPage& page, const Data& result) {
  const std::int64_t layer = page.fit.model.layers / 2;
  Data layers = Data::map();
  layers.set("layer", layer);
  for (const program::Phase phase : {program::Phase::forward, program::Phase::backward})
    layers.set(std::string(program::name_of(phase)), layer_spans(page.trace, layer, phase));
  return Data::map().set("waterfall", waterfall(result)).set("layer", std::move(layers));
}

void add_time(std::vector<Block>& blocks, const Data& data) {
  if (list_at(data, "time.waterfall").empty()) return;
  add_waterfall(blocks, data);
  add_layer(blocks, data, "forward");
  add_layer(blocks, data, "backward");
}

}  // namespace zeroplan::reports
