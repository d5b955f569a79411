#include "planner/describe/machine/device_architecture.hpp"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <utility>

#include "planner/describe/machine/hardware_reader.hpp"
#include "planner/describe/text/named_description.hpp"

namespace zeroplan::describe {
namespace {

constexpr std::string_view kOther = "other";
constexpr std::string_view kHost = "host";

constexpr FigureRange kFraction{.minimum = 1e-3, .maximum = 10};
constexpr FigureRange kSize{.minimum = 1, .maximum = 1e6};
constexpr FigureRange kGbytesPerSecond{.minimum = 1e-3, .maximum = 1e6};

std::vector<Tile> read_tiles(MapReader& reader) {
  std::vector<Tile> tiles;
  const Value* list = reader.list("tiles");
  if (list == nullptr) return tiles;
  for (const Value& item : list->items) {
    MapReader tile(item, reader.source(), reader.dotted("tiles"), reader.problems());
    for (const std::string_view key : {"rows", "columns", "efficiency", "source"})
      tile.missing(key, "a value");
    tiles.push_back({tile.real("rows", kSize.minimum, kSize.maximum).value_or(1),
                     tile.real("columns", kSize.minimum, kSize.maximum).value_or(1),
                     tile.real("efficiency", kFraction.minimum, 1).value_or(1)});
    tile.string("source");
    tile.boolean("assumed");
    tile.finish();
  }
  return tiles;
}

// `base`: what is not in the file.
DeviceArchitecture read_architecture(const EmbeddedFile& file, const DeviceArchitecture& base) {
  Problems problems;
  const Document& document = document_of(file);
  MapReader reader(document.root, document.source, "", problems);
  DeviceArchitecture result = base;
  reader.ignore("kind");
  reader.ignore("schema");
  Heading heading = read_heading(reader);
  result.name = std::move(heading.name);
  result.title = std::move(heading.title);
  const auto take = [&](std::string_view key, Figure& figure, FigureRange range) {
    if (auto read = read_figure(reader, key, range)) figure = *std::move(read);
  };
  take("matmul_fraction", result.matmul_fraction, kFraction);
  take("memory_fraction", result.memory_fraction, kFraction);
  take("attention_fraction", result.attention_fraction, kFraction);
  take("sustained_fraction", result.sustained_fraction, kFraction);
  take("attention_half_length", result.attention_half_length, kSize);
  take("attention_half_head", result.attention_half_head, kSize);
  take("attention_backward", result.attention_backward, kFraction);
  take("elementwise_gbytes_per_s", result.elementwise_gbytes_per_s, kGbytesPerSecond);
  take("tile_overhead_depth", result.tile_overhead_depth, kSize);
  if (auto tiles = read_tiles(reader); !tiles.empty()) result.tiles = std::move(tiles);
  result.aligned_size = read_figure(reader, "aligned_size", kSize);
  result.unaligned_fraction = read_figure(reader, "unaligned_fraction", kFraction);
  result.host_optimizer_gbytes_per_s = read_figure(reader, "host_optimizer_gbytes_per_s", kGbytesPerSecond);
  result.one_stream = reader.boolean("one_stream").value_or(false);
  reader.finish();
  problems.throw_if_any();
  return result;
}

const std::vector<DeviceArchitecture>& architectures() {
  static const std::vector<DeviceArchitecture> all = [] {
    const std::span<const EmbeddedFile> files = embedded_architectures();
    const auto other = std::find_if(files.begin(), files.end(),
                                    [](const EmbeddedFile& file) { return file.name == kOther; });
    if (other == files.end()) throw std::logic_error("architectures: there is no file \"other\"");
    std::vector<DeviceArchitecture> list{read_architecture(*other, {})};
    for (const EmbeddedFile& file : files) {
      if (file.name != kOther) list.push_back(read_architecture(file, list.front()));
    }
    return list;
  }();
  return all;
}

}  // namespace

const DeviceArchitecture& find_architecture(const std::string& name) {
  const std::vector<DeviceArchitecture>& all = architectures();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const DeviceArchitecture& one) { return one.name == name; });
  return found == all.end() ? all.front() : *found;
}

const DeviceArchitecture& other_architecture() { return architectures().front(); }

const DeviceArchitecture& host_architecture() {
  static const DeviceArchitecture& host = find_architecture(std::string(kHost));
  return host;
}

}  // namespace zeroplan::describe
