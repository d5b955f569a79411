#include "reports/charts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace zeroplan::reports {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kBarHeight = 26, kLaneHeight = 34, kCellHeight = 30, kLevelsHeight = 280;

// What all charts begin with. The page sets the width.
Json chart(const Json& height) {
  return {{"$schema", "https://vega.github.io/schema/vega/v5.json"},
          {"width", 600},
          {"height", height},
          {"padding", {{"left", 4}, {"top", 4}, {"right", 20}, {"bottom", 4}}},
          {"autosize", {{"type", "fit-x"}, {"contains", "padding"}}}};
}

Json names_of(const std::vector<Shade>& shades) {
  Json names = Json::array();
  for (const Shade& shade : shades) names.push_back(shade.name);
  return names;
}
Json colors_of(const std::vector<Shade>& shades) {
  Json colors = Json::array();
  for (const Shade& shade : shades) colors.push_back(shade.color);
  return colors;
}
Json shade_scale(const std::vector<Shade>& shades) {
  return {{"name", "shade"}, {"type", "ordinal"}, {"domain", names_of(shades)}, {"range", colors_of(shades)}};
}

Json scaled(const char* scale, const char* field) { return {{"scale", scale}, {"field", field}}; }

// Those of `shades` that are used.
std::vector<Shade> used(const std::vector<Shade>& shades, const auto& is_used) {
  std::vector<Shade> result;
  std::copy_if(shades.begin(), shades.end(), std::back_inserter(result),
               [&](const Shade& shade) { return is_used(shade.name); });
  return result;
}

Json data_of(const std::vector<Mark>& marks) {
  Json rows = Json::array();
  for (const Mark& mark : marks) rows.push_back({{"v", mark.value}, {"t", mark.name}});
  return rows;
}

// From 0 to the largest of the rows' field and of the marks.
Json value_scale(const char* name, const char* field, const char* range) {
  return {{"name", name},
          {"type", "linear"},
          {"domain",
           {{"fields",
             Json::array({{{"data", "rows"}, {"field", field}}, {{"data", "marks"}, {"field", "v"}}})}}},
          {"range", range},
          {"nice", true},
          {"zero", true}};
}

// As many ticks as there is room for.
Json bottom_axis(std::string_view title) {
  return {{"orient", "bottom"},
          {"scale", "x"},
          {"title", title},
          {"tickCount", {{"signal", "max(2, floor(width / 80))"}}}};
}
// Of bars and lanes: their names, and what is measured.
Json lane_axes(std::string_view title) {
  Json bottom = bottom_axis(title);
  bottom["grid"] = true;
  return Json::array(
      {{{"orient", "left"}, {"scale", "y"}, {"domain", false}, {"ticks", false}}, std::move(bottom)});
}

// The line of a mark, and the text of a mark or a peak, at a place.
Json mark_line(Json place) {
  place["stroke"] = {{"value", "currentColor"}};
  place["strokeDash"] = {{"value", Json::array({4, 3})}};
  return {{"type", "rule"}, {"from", {{"data", "marks"}}}, {"encode", {{"update", std::move(place)}}}};
}
Json mark_text(const char* data, const char* field, Json place) {
  place["baseline"] = {{"value", "bottom"}};
  place["fill"] = {{"value", "currentColor"}};
  place["limit"] = {{"signal", "width"}};
  place["text"] = {{"field", field}};
  return {{"type", "text"}, {"from", {{"data", data}}}, {"encode", {{"update", std::move(place)}}}};
}

}  // namespace

const std::vector<Shade>& memory_shades() {
  // Of similar lightness, so that each is seen on white and on black; neighbours differ in hue.
  static const std::vector<Shade> shades{{"parameter", "#4878b0"},       {"gradient", "#d98032"},
                                         {"optimizer_state", "#4e9a5b"}, {"activation", "#b9505a"},
                                         {"checkpoint", "#8a6bb1"},      {"gathered", "#38989e"},
                                         {"bucket", "#a8893a"},          {"logits", "#c4699b"},
                                         {"workspace", "#7f7f7f"},       {"overhead", "#a9a9a9"}};
  return shades;
}

Drawing bars_chart(const std::vector<Bar>& bars, const std::vector<Shade>& shades,
                   const std::vector<Mark>& marks, std::string_view unit) {
  Json rows = Json::array(), names = Json::array();
  std::vector<std::pair<std::string, double>> ends;  // of each bar so far
  for (const Bar& bar : bars) {
    auto end =
        std::find_if(ends.begin(), ends.end(), [&](const auto& known) { return known.first == bar.name; });
    if (end == ends.end()) {
      end = ends.insert(ends.end(), {bar.name, 0});
      names.push_back(bar.name);
    }
    const double start = bar.start.value_or(end->second);
    end->second = start + bar.value;
    rows.push_back(
        {{"b", bar.name}, {"p", bar.part}, {"v", bar.value}, {"x0", start}, {"x1", start + bar.value}});
  }
  const std::vector<Shade> shown = used(shades, [&](const std::string& name) {
    return std::any_of(bars.begin(), bars.end(),
                       [&](const Bar& bar) { return bar.part == name && bar.value != 0; });
  });
  Json spec = chart(static_cast<int>(ends.size()) * kBarHeight);
  spec["data"] =
      Json::array({{{"name", "rows"}, {"values", rows}}, {{"name", "marks"}, {"values", data_of(marks)}}});
  spec["scales"] = Json::array(
      {{{"name", "y"}, {"type", "band"}, {"domain", names}, {"range", "height"}, {"padding", 0.2}},
       value_scale("x", "x1", "width"),
       shade_scale(shown)});
  spec["axes"] = lane_axes(unit);
  spec["marks"] = Json::array(
      {{{"type", "rect"},
        {"name", "bars"},
        {"from", {{"data", "rows"}}},
        {"encode",
         {{"update",
           {{"x", scaled("x", "x0")},
            {"x2", scaled("x", "x1")},
            {"y", scaled("y", "b")},
            {"height", {{"scale", "y"}, {"band", 1}}},
            {"fill", scaled("shade", "p")},
            {"tooltip", {{"signal", "datum.p + ': ' + format(datum.v, ',.4~g')"}}}}}}}},
       mark_line({{"x", scaled("x", "v")}, {"y", {{"value", 0}}}, {"y2", {{"signal", "height"}}}}),
       mark_text("marks", "t",
                 {{"x", scaled("x", "v")}, {"y", {{"value", -4}}}, {"align", {{"value", "right"}}}})});
  return {spec.dump(), shown};
}

Drawing levels_chart(const std::vector<Level>& levels, double end, const std::vector<Shade>& shades,
                     const std::vector<Mark>& marks, const Mark& peak, double peak_time,
                     std::string_view time_unit, std::string_view unit, std::int64_t unit_bytes) {
  std::vector<bool> is_used(shades.size());
  for (const Level& level : levels) {
    for (std::size_t i = 0; i < shades.size(); ++i) is_used[i] = is_used[i] || level.values[i] != 0;
  }
  // Bytes, which are whole numbers, are shorter than what they are in the unit.
  Json rows = Json::array();
  const auto add = [&](double time, const Level& level) {
    Json row = {{"t", time}};
    for (std::size_t i = 0; i < shades.size(); ++i) {
      if (is_used[i]) row[std::to_string(i)] = level.values[i];
    }
    rows.push_back(std::move(row));
  };
  for (const Level& level : levels) add(level.time, level);
  if (!levels.empty()) add(end, levels.back());
  std::vector<Shade> shown;
  Json numbers = Json::array();
  for (std::size_t i = 0; i < shades.size(); ++i) {
    if (!is_used[i]) continue;
    shown.push_back(shades[i]);
    numbers.push_back(std::to_string(i));
  }
  Json spec = chart(kLevelsHeight);
  Json peaks = Json::array();
  peaks.push_back({{"t", peak_time}, {"v", peak.value}, {"n", peak.name}});
  const Json fold = {{"type", "fold"}, {"fields", numbers}, {"as", Json::array({"p", "bytes"})}};
  const Json formula = {
      {"type", "formula"}, {"as", "v"}, {"expr", fmt::format("datum.bytes / {}", unit_bytes)}};
  const Json stack = {
      {"type", "stack"}, {"groupby", Json::array({"t"})}, {"sort", {{"field", "p"}}}, {"field", "v"}};
  spec["data"] =
      Json::array({{{"name", "rows"}, {"values", rows}, {"transform", Json::array({fold, formula, stack})}},
                   {{"name", "marks"}, {"values", data_of(marks)}},
                   {{"name", "peak"}, {"values", peaks}}});
  spec["scales"] =
      Json::array({{{"name", "x"}, {"type", "linear"}, {"domain", Json::array({0, end})}, {"range", "width"}},
                   value_scale("y", "y1", "height"),
                   {{"name", "color"}, {"type", "ordinal"}, {"domain", numbers}, {"range", colors_of(shown)}},
                   shade_scale(shown)});
  spec["axes"] = Json::array(
      {bottom_axis(time_unit), {{"orient", "left"}, {"scale", "y"}, {"title", unit}, {"grid", true}}});
  spec["marks"] =
      Json::array({{{"type", "group"},
                    {"from", {{"facet", {{"name", "area"}, {"data", "rows"}, {"groupby", "p"}}}}},
                    {"marks", Json::array({{{"type", "area"},
                                            {"from", {{"data", "area"}}},
                                            {"encode",
                                             {{"update",
                                               {{"interpolate", {{"value", "step-after"}}},
                                                {"x", scaled("x", "t")},
                                                {"y", scaled("y", "y0")},
                                                {"y2", scaled("y", "y1")},
                                                {"fill", scaled("color", "p")}}}}}}})}},
                   mark_line({{"x", {{"value", 0}}}, {"x2", {{"signal", "width"}}}, {"y", scaled("y", "v")}}),
                   mark_text("marks", "t",
                             {{"x", {{"signal", "width"}}},
                              {"y", {{"scale", "y"}, {"field", "v"}, {"offset", -4}}},
                              {"align", {{"value", "right"}}}}),
                   {{"type", "symbol"},
                    {"from", {{"data", "peak"}}},
                    {"encode",
                     {{"update",
                       {{"x", scaled("x", "t")},
                        {"y", scaled("y", "v")},
                        {"fill", {{"value", "currentColor"}}},
                        {"size", {{"value", 40}}}}}}}},
                   mark_text("peak", "n",
                             {{"x", scaled("x", "t")},
                              {"y", {{"scale", "y"}, {"field", "v"}, {"offset", -8}}},
                              {"align", {{"signal", "datum.t * 2 > domain('x')[1] ? 'right' : 'left'"}}}})});
  return {spec.dump(), shown};
}

Drawing spans_chart(const std::vector<Span>& spans, const std::vector<std::string>& lanes,
                    const std::vector<Shade>& shades, std::string_view time_unit) {
  Json rows = Json::array();
  double end = 0;
  for (const Span& span : spans) {
    rows.push_back(
        {{"l", span.lane}, {"n", span.name}, {"k", span.kind}, {"a", span.start}, {"b", span.end}});
    end = std::max(end, span.end);
  }
  const std::vector<Shade> shown = used(shades, [&](const std::string& name) {
    return std::any_of(spans.begin(), spans.end(), [&](const Span& span) { return span.kind == name; });
  });
  Json spec = chart(static_cast<int>(lanes.size()) * kLaneHeight);
  spec["data"] = Json::array({{{"name", "rows"}, {"values", rows}}});
  spec["scales"] = Json::array(
      {{{"name", "x"}, {"type", "linear"}, {"domain", Json::array({0, end})}, {"range", "width"}},
       {{"name", "y"}, {"type", "band"}, {"domain", lanes}, {"range", "height"}, {"padding", 0.15}},
       shade_scale(shown)});
  spec["axes"] = lane_axes(time_unit);
  spec["marks"] =
      Json::array({{{"type", "rect"},
                    {"name", "spans"},
                    {"from", {{"data", "rows"}}},
                    {"encode",
                     {{"update",
                       {{"x", scaled("x", "a")},
                        {"x2", scaled("x", "b")},
                        {"y", scaled("y", "l")},
                        {"height", {{"scale", "y"}, {"band", 1}}},
                        {"fill", scaled("shade", "k")},
                        {"tooltip", {{"signal", "datum.n + ', ' + format(datum.b - datum.a, '.3~g')"}}}}}}}},
                   {{"type", "text"},
                    {"from", {{"data", "rows"}}},
                    {"encode",
                     {{"update",
                       {{"x", {{"scale", "x"}, {"field", "a"}, {"offset", 3}}},
                        {"y", {{"scale", "y"}, {"field", "l"}, {"band", 0.5}}},
                        {"baseline", {{"value", "middle"}}},
                        {"fill", {{"value", "#ffffff"}}},
                        {"fontSize", {{"value", 11}}},
                        {"text",
                         {{"signal",
                           "(scale('x', datum.b) - scale('x', datum.a)) > 6.5 * length(datum.n) + 6 ? "
                           "datum.n : ''"}}}}}}}}});
  return {spec.dump(), shown};
}

Drawing heat_chart(const std::vector<HeatCell>& cells, std::string_view row_title,
                   std::string_view column_title) {
  Json rows = Json::array();
  const auto add_name = [](Json& names, const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  Json panels = Json::array(), row_names = Json::array(), column_names = Json::array();
  for (const HeatCell& cell : cells) {
    add_name(panels, cell.panel);
    add_name(row_names, cell.row);
    add_name(column_names, cell.column);
    rows.push_back({{"p", cell.panel},
                    {"r", cell.row},
                    {"c", cell.column},
                    {"v", cell.value ? Json(*cell.value) : Json()},
                    {"t", cell.text}});
  }
  const int height = static_cast<int>(row_names.size()) * kCellHeight;
  const int between = 64;  // a panel's title, and the axis of the one above it
  Json spec = chart(static_cast<int>(panels.size()) * (height + between) - between);
  spec["signals"] = Json::array({{{"name", "panel_height"}, {"value", height}}});
  spec["data"] = Json::array({{{"name", "rows"}, {"values", rows}}});
  spec["scales"] = Json::array(
      {{{"name", "panel"},
        {"type", "ordinal"},
        {"domain", panels},
        {"range",
         [&] {
           Json places = Json::array();
           for (std::size_t i = 0; i < panels.size(); ++i)
             places.push_back(static_cast<int>(i) * (height + between));
           return places;
         }()}},
       {{"name", "x"}, {"type", "band"}, {"domain", column_names}, {"range", "width"}, {"padding", 0.04}},
       {{"name", "y"},
        {"type", "band"},
        {"domain", row_names},
        {"range", Json::array({0, {{"signal", "panel_height"}}})},
        {"padding", 0.06}},
       {{"name", "color"},
        {"type", "linear"},
        {"domain", {{"data", "rows"}, {"field", "v"}}},
        {"range", Json::array({"#dbe9f6", "#2a6fb0"})},
        {"zero", true}}});
  const Json axes = Json::array(
      {{{"orient", "left"}, {"scale", "y"}, {"title", row_title}, {"domain", false}, {"ticks", false}},
       {{"orient", "bottom"}, {"scale", "x"}, {"title", column_title}, {"domain", false}, {"ticks", false}}});
  const Json place = {{"x", scaled("x", "c")},
                      {"y", scaled("y", "r")},
                      {"width", {{"scale", "x"}, {"band", 1}}},
                      {"height", {{"scale", "y"}, {"band", 1}}}};
  Json filled = place;
  filled["fill"] = Json::array({{{"test", "datum.v === null"}, {"value", "#8c959f"}}, scaled("color", "v")});
  filled["fillOpacity"] = Json::array({{{"test", "datum.v === null"}, {"value", 0.25}}, {{"value", 1}}});
  spec["marks"] = Json::array(
      {{{"type", "group"},
        {"from", {{"facet", {{"name", "cells"}, {"data", "rows"}, {"groupby", "p"}}}}},
        {"encode",
         {{"update",
           {{"y", scaled("panel", "p")},
            {"width", {{"signal", "width"}}},
            {"height", {{"signal", "panel_height"}}}}}}},
        {"title", {{"text", {{"signal", "parent.p"}}}, {"anchor", "start"}, {"fontSize", 12}, {"offset", 4}}},
        {"axes", axes},
        {"marks",
         Json::array({{{"type", "rect"},
                       {"name", "heat"},
                       {"from", {{"data", "cells"}}},
                       {"encode", {{"update", filled}}}},
                      {{"type", "text"},
                       {"from", {{"data", "cells"}}},
                       {"encode",
                        {{"update",
                          {{"x", {{"scale", "x"}, {"field", "c"}, {"band", 0.5}}},
                           {"y", {{"scale", "y"}, {"field", "r"}, {"band", 0.5}}},
                           {"align", {{"value", "center"}}},
                           {"baseline", {{"value", "middle"}}},
                           {"fontSize", {{"value", 11}}},
                           {"limit", {{"signal", "bandwidth('x')"}}},
                           {"fill", Json::array({{{"test", "datum.v === null"}, {"value", "currentColor"}},
                                                 {{"test", "datum.v > 0.6 * domain('color')[1]"},
                                                  {"value", "#ffffff"}},
                                                 {{"value", "#1b1f24"}}})},
                           {"text", {{"field", "t"}}}}}}}}})}}});
  return {spec.dump(), {}};
}

}  // namespace zeroplan::reports
