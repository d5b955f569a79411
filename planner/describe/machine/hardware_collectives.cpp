#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "planner/describe/machine/hardware_reader.hpp"

namespace zeroplan::describe {
namespace {

constexpr FigureRange kGbytesPerSecond{.minimum = 1e-6, .maximum = 1e6};
constexpr double kMostDevices = 1e6;
constexpr Bytes kSmallestVector = 1;

// First calls of a benchmark are often slow, so a small vector that took longer than a larger one is what is
// put right.
void set_seconds(AttainedCollective& attained) {
  const double n = static_cast<double>(attained.devices);
  double bytes = attained.first_bytes;
  attained.seconds.reserve(attained.busbw_gbytes_per_s.size());
  for (const double rate : attained.busbw_gbytes_per_s) {
    attained.seconds.push_back(bytes * ring_share(attained.collective, n) / (rate * 1e9));
    bytes *= 2;
  }
  for (std::size_t i = attained.seconds.size() - 1; i > 0; --i) {
    attained.seconds[i - 1] = std::min(attained.seconds[i - 1], attained.seconds[i]);
  }
}

std::optional<std::int64_t> read_count(MapReader& reader, std::string_view key, double minimum) {
  const auto figure = read_figure(reader, key, {.minimum = minimum, .maximum = kMostDevices, .whole = true});
  if (!figure) return std::nullopt;
  return static_cast<std::int64_t>(figure->value);
}

std::optional<AttainedCollective> read_entry(MapReader& reader) {
  AttainedCollective entry;
  reader.missing("op", fmt::format("one of {}", fmt::join(collective_names(), ", ")));
  reader.missing("devices", "how many took part");
  reader.missing("source", "where the figures come from");
  const std::optional<std::size_t> collective = reader.one_of("op", collective_names());
  const std::optional<std::int64_t> devices = read_count(reader, "devices", 2);
  entry.nodes = read_count(reader, "nodes", 1).value_or(1);
  const std::size_t problems_before = reader.problems().list().size();
  const std::optional<Figure> first = read_bytes_figure(reader, "first", kSmallestVector);
  if (!first && reader.problems().list().size() == problems_before) {
    reader.problem("first_bytes", "missing, expected the size of the first figure");
  }
  if (const auto type = reader.one_of("dtype", type_names()))
    entry.type = static_cast<program::DataType>(*type);
  entry.busbw_gbytes_per_s = read_numbers(reader, "busbw_gbytes_per_s", kGbytesPerSecond,
                                          "a number, or a list of one for each size");
  entry.source = reader.string("source").value_or("");
  entry.note = reader.string("note").value_or("");
  entry.assumed = reader.boolean("assumed").value_or(false);
  reader.finish();
  if (!collective || !devices || !first || entry.busbw_gbytes_per_s.empty()) return std::nullopt;
  if (entry.nodes > *devices) {
    reader.problem("nodes", fmt::format("found {}, expected at most the {} devices", entry.nodes, *devices));
    return std::nullopt;
  }
  entry.collective = static_cast<Collective>(*collective);
  entry.devices = *devices;
  entry.first_bytes = first->value;
  set_seconds(entry);
  return entry;
}

}  // namespace

const std::vector<std::string>& collective_names() {
  static const std::vector<std::string> names{"all_reduce", "all_gather", "reduce_scatter"};
  return names;
}

std::vector<AttainedCollective> read_attained_collectives(MapReader& reader) {
  std::vector<AttainedCollective> attained;
  const Value* list = reader.list("collectives_attained");
  if (list == nullptr) return attained;
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    const std::string key = fmt::format("{}[{}]", reader.dotted("collectives_attained"), i);
    if (list->items[i].kind != Value::Kind::map) {
      reader.problem("collectives_attained", "expected a list of maps");
      continue;
    }
    MapReader item(list->items[i], reader.source(), key, reader.problems());
    if (auto entry = read_entry(item)) attained.push_back(std::move(*entry));
  }
  return attained;
}

}  // namespace zeroplan::describe
