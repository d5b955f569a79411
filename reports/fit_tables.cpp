#include "reports/fit_tables.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/predict/verdict.hpp"
#include "reports/figures.hpp"
#include "reports/keyed_table.hpp"
#include "reports/numbers.hpp"
#include "reports/writers.hpp"

namespace zeroplan::reports {
namespace {

constexpr std::size_t kCommentWidth = 94;
constexpr std::size_t kLiveBuffersShown = 6;
constexpr double kNotShown = 5 * static_cast<double>(kMiB);  // would be printed as 0.00 GiB

}  // namespace

Table memory_table(const Data& result) {
  Table table{{{"Memory per GPU at the peak", false}, {"GiB"}, {"GB"}, {"% of capacity"}}, {}, {}};
  const double capacity = number_at(result, "capacity_bytes");
  const auto add = [&](std::string name, double bytes) {
    table.rows.push_back(
        {std::move(name), Gibibytes{bytes}, Gigabytes{bytes}, Percent{capacity == 0 ? 0 : bytes / capacity}});
  };
  for (const Figure& figure : figures()) {
    if (!figure.key.starts_with(kCategoryPrefix) || figure.title.empty()) continue;
    const double bytes = number_at(result, figure.key);
    if (bytes > kNotShown) add(figure.title, bytes);
  }
  for (const Data& term : list_at(result, "overheads")) {
    add("overhead: " + spaced(text_at(term, "name")), number_at(term, "bytes"));
  }
  table.rules_before = {table.rows.size()};
  const double peak = number_at(result, "peak_bytes");
  add(figure_of("peak_bytes").title, peak);
  add(figure_of("capacity_bytes").title + ": " + text_at(result, "capacity_basis"), capacity);
  add("left", capacity - peak);
  return table;
}

std::string peak_sentence(const Data& at) {
  std::string text = fmt::format("The peak is in {}", text_at(at, "phase"));
  if (!at.find("layer")->is_null()) text += fmt::format(", layer {}", number_at(at, "layer"));
  text += fmt::format(", before {}", text_at(at, "instruction"));
  if (!at.find("buffer")->is_null()) {
    text += fmt::format(", where \"{}\" is acquired", text_at(at, "buffer"));
  }
  return text + ".";
}

Table live_table(const Data::List& live) {
  const std::vector<KeyedColumn> columns{{{"Largest buffers then", false}, "name"},
                                         {{"category", false}, "category"},
                                         {{"instances"}, "instances"},
                                         {{"GiB"}, "bytes", kGibibytes}};
  const std::size_t shown = std::min(live.size(), kLiveBuffersShown);
  Table table = table_of({live.begin(), live.begin() + static_cast<std::ptrdiff_t>(shown)}, columns);
  double rest = 0;
  for (std::size_t i = shown; i < live.size(); ++i) rest += number_at(live[i], "bytes");
  if (rest > 0) {
    table.rows.push_back({counted(static_cast<std::int64_t>(live.size() - shown), "more buffer"),
                          std::string(), std::monostate{}, Gibibytes{rest}});
  }
  return table;
}

void add_host(std::vector<Block>& blocks, const Data& result, const describe::Device& device) {
  if (number_at(result, "host_bytes.per_node") == 0) return;
  Table table{{{"Host memory", false}, {"GiB"}, {"GB"}}, {}, {}};
  const auto add = [&](const std::string& title, const char* key) {
    table.rows.push_back({title, cell_at(result, key, kGibibytes), cell_at(result, key, kGigabytes)});
  };
  for (const char* key : {"host_bytes.per_gpu", "host_bytes.per_node"}) add(figure_of(key).title, key);
  constexpr const char* kCapacity = "host_bytes.capacity_per_node";
  if (!result.find(kCapacity)->is_null()) {
    add(device.capacity.from_host_memory ? "left beside the ranks" : "a node has", kCapacity);
  }
  blocks.emplace_back(std::move(table));
}

Table traffic_table(const Data& result) {
  const std::vector<KeyedColumn> columns{{{"Traffic per GPU and step", false},
                                          "",
                                          kPlain,
                                          [](const Data& row) { return spaced(text_at(row, "group")); }},
                                         {{"collective", false}, "collective"},
                                         {{"phase", false}, "phase"},
                                         {{"calls"}, "calls", decimals(0)},
                                         {{"GB sent"}, "sent_bytes", kGigabytes},
                                         {{"Psi"}, "psi"}};
  Table table = table_of({}, columns);
  const auto add = [&](std::string group, std::string what, const std::string& key, Cell psi) {
    table.rows.push_back({std::move(group), std::move(what), std::string(), std::monostate{},
                          cell_at(result, key, kGigabytes), std::move(psi)});
  };
  // Data parallelism has several kinds of groups (planner/program/groups.hpp).
  for (const std::string group : {"data_parallel", "tensor_parallel"}) {
    const std::size_t before = table.rows.size();
    for (const Data& row : list_at(result, "traffic_bytes.collectives")) {
      const bool is_tensor = text_at(row, "group") == "tensor_parallel";
      if (is_tensor == (group == "tensor_parallel")) table.rows.push_back(row_of(row, columns));
    }
    if (table.rows.size() == before) continue;
    table.rules_before.push_back(table.rows.size());
    const std::string key = "traffic_bytes." + group;
    add(figure_of(key).title, "all", key,
        group == "data_parallel" ? cell_at(result, "traffic_psi", decimals(2)) : Cell());
  }
  const std::string to_host = "traffic_bytes.device_to_host", to_device = "traffic_bytes.host_to_device";
  if (number_at(result, to_host) > 0 || number_at(result, to_device) > 0) {
    for (const std::string& key : {to_host, to_device}) add("host", figure_of(key).title, key, {});
  }
  return table;
}

std::string flops_sentence(const Data& result) {
  constexpr double kTera = 1e12;
  return fmt::format(
      "Compute per GPU and step: {:.2f} TFLOP of the model, {:.2f} TFLOP with what is computed again.",
      number_at(result, "flops.model") / kTera, number_at(result, "flops.hardware") / kTera);
}

void add_suggestions(std::vector<Block>& blocks, const Data::List& suggestions) {
  if (suggestions.empty()) {
    blocks.emplace_back(Paragraph{"No change that was tried makes it fit."});
    return;
  }
  const bool one_is_sure = std::any_of(suggestions.begin(), suggestions.end(),
                                       [](const Data& change) { return list_at(change, "missing").empty(); });
  blocks.emplace_back(Heading{one_is_sure ? "The cheapest changes that make it fit"
                                          : "The cheapest changes that may make it fit"});
  Commands commands;
  for (const Data& suggestion : suggestions) {
    const auto gib = [&](const char* key) { return number_at(suggestion, key) / static_cast<double>(kGiB); };
    std::string comment = fmt::format("{}: {:.2f} GiB; {}", text_at(suggestion, "what"), gib("peak_bytes"),
                                      text_at(suggestion, "cost"));
    if (const double host = gib("host_bytes_per_node"); host > 0) {
      comment += fmt::format("; {:.1f} GiB of host memory a node", host);
    }
    for (const Data& item : list_at(suggestion, "missing")) {
      comment += text_at(item, "key") == predict::kShape
                     ? "; of the states alone"
                     : "; fits if a node has that, which is not described";
    }
    for (const std::string& line : wrapped_lines(comment, kCommentWidth))
      commands.lines.push_back("# " + line);
    commands.lines.push_back(text_at(suggestion, "command"));
  }
  blocks.emplace_back(std::move(commands));
}

}  // namespace zeroplan::reports
