#include "planner/describe/machine/hardware_reader.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "planner/describe/text/named_description.hpp"

namespace zeroplan::describe {
namespace {

using Kind = HardwareName::Kind;

constexpr std::string_view kSchema = "zeroplan.hardware/1";
constexpr std::int64_t kMostDevicesPerNode = 1024;
constexpr std::int64_t kMostNodes = 1'000'000;
constexpr FigureRange kGbytesPerSecond{.minimum = 0, .maximum = 1e6};

const std::vector<std::string>& kind_names() {
  static const std::vector<std::string> names{"device", "node", "cluster"};
  return names;
}

void check_schema(MapReader& reader, bool required) {
  const std::optional<std::string> schema = reader.string("schema");
  if (required) reader.missing("schema", kSchema);
  if (schema && *schema != kSchema) {
    reader.problem("schema", fmt::format("found {}, expected {}", quoted(*schema), kSchema));
  }
}

// A device or node inside another may repeat kind and schema, as when one file was pasted into another.
void check_nested_kind(MapReader& reader, Kind expected) {
  check_schema(reader, false);
  const std::optional<std::size_t> kind = reader.one_of("kind", kind_names());
  if (kind && *kind != static_cast<std::size_t>(expected)) {
    reader.problem("kind", fmt::format("found {}, expected {}", kind_names()[*kind],
                                       kind_names()[static_cast<std::size_t>(expected)]));
  }
}

const HardwareDescription& read_embedded(const EmbeddedFile& file) {
  return remembered<HardwareDescription>(file, read_hardware_yaml);
}

// `key` names a preset of this kind, or holds a whole description. `read_nested` reads the latter.
template <class ReadNested>
void read_named_or_nested(MapReader& reader, std::string_view key, Kind kind, HardwareDescription& into,
                          ReadNested read_nested) {
  const std::string& kind_name = kind_names()[static_cast<std::size_t>(kind)];
  const Value* value = reader.any(key);
  if (value == nullptr || value->kind == Value::Kind::null) {
    reader.missing(key, fmt::format("the name of a {} or its description", kind_name));
  } else if (value->kind == Value::Kind::map) {
    MapReader nested(*value, reader.source(), reader.dotted(key), reader.problems());
    check_nested_kind(nested, kind);
    read_nested(nested, into);
    nested.finish();
  } else if (value->kind == Value::Kind::scalar) {
    const EmbeddedFile* file = find_preset(value->text, kind);
    if (file == nullptr) {
      reader.problem(key, unknown_preset(value->text, {kind}, fmt::format("a {} preset", kind_name)));
      return;
    }
    const HardwareDescription& preset = read_embedded(*file);
    into.device = preset.device;
    into.node = preset.node;
  } else {
    reader.problem(key, fmt::format("found a list, expected the name of a {} or its description", kind_name));
  }
}

void check_network(MapReader& reader, const Node& node) {
  if (!node.nics || !node.nic_gbits_per_s || !node.internode_gbytes_per_s) return;
  const double wire = node.nics->value * node.nic_gbits_per_s->value / 8;
  if (node.internode_gbytes_per_s->value > 1.001 * wire) {
    reader.problem(
        "internode_gbytes_per_s",
        fmt::format("found {}, expected at most {} interfaces x {} Gbit/s / 8 = {} GB/s",
                    node.internode_gbytes_per_s->value, node.nics->value, node.nic_gbits_per_s->value, wire));
  }
}

// Out of a node goes what its interfaces carry together, where the file does not say less.
void take_network(Node& node) {
  if (node.internode_gbytes_per_s || !node.nics || !node.nic_gbits_per_s) return;
  Figure wire = *node.nic_gbits_per_s;
  wire.value = node.nics->value * node.nic_gbits_per_s->value / 8;
  wire.note = "nics x nic_gbits_per_s / 8, one direction";
  node.internode_gbytes_per_s = std::move(wire);
}

void read_node(MapReader& reader, HardwareDescription& into) {
  Node node;
  Heading heading = read_heading(reader);
  node.name = std::move(heading.name);
  node.title = std::move(heading.title);
  read_named_or_nested(
      reader, "device", Kind::device, into,
      [](MapReader& nested, HardwareDescription& description) { description.device = read_device(nested); });
  node.device = into.device->name;
  reader.missing("devices", "the number of devices of a node");
  if (auto devices = read_figure(reader, "devices", {1, static_cast<double>(kMostDevicesPerNode), true})) {
    node.devices = static_cast<std::int64_t>(devices->value);
    node.devices_source = std::move(devices->source);
  }
  reader.missing("fabric", fmt::format("one of {}", fmt::join(fabric_names(), ", ")));
  if (const auto fabric = reader.one_of("fabric", fabric_names())) node.fabric = static_cast<Fabric>(*fabric);
  node.link_gbytes_per_s_per_device = read_figure(reader, "link_gbytes_per_s_per_device", kGbytesPerSecond);
  node.nics = read_figure(reader, "nics", {.minimum = 0, .maximum = 1024, .whole = true});
  node.nic_gbits_per_s = read_figure(reader, "nic_gbits_per_s", {.minimum = 0, .maximum = 1e5});
  node.internode_gbytes_per_s = read_figure(reader, "internode_gbytes_per_s", kGbytesPerSecond);
  node.host_memory_bytes = read_bytes_figure(reader, "host_memory", kMiB);
  node.host_optimizer_gbytes_per_s = read_figure(reader, "host_optimizer_gbytes_per_s", kGbytesPerSecond);
  node.attained_collectives = read_attained_collectives(reader);
  node.note = reader.string("note").value_or("");
  check_network(reader, node);
  take_network(node);
  into.node = std::make_shared<const Node>(std::move(node));
}

void read_cluster(MapReader& reader, HardwareDescription& into) {
  Heading heading = read_heading(reader);
  into.name = std::move(heading.name);
  into.title = std::move(heading.title);
  read_named_or_nested(reader, "node", Kind::node, into, read_node);
  reader.missing("nodes", "the number of nodes");
  const auto nodes = read_figure(reader, "nodes", {1, static_cast<double>(kMostNodes), true});
  into.nodes = nodes ? static_cast<std::int64_t>(nodes->value) : 1;
  reader.string("note");
}

const HardwareDescription& read_preset(const std::string& name, Kind kind) {
  const EmbeddedFile* file = find_preset(name, kind);
  if (file == nullptr) {
    const std::string expected = fmt::format("a {} preset", kind_names()[static_cast<std::size_t>(kind)]);
    throw ConfigurationError(Problem{"", 0, "", unknown_preset(name, {kind}, expected)});
  }
  return read_embedded(*file);
}

}  // namespace

const std::vector<std::string>& fabric_names() {
  static const std::vector<std::string> names{"nvswitch", "cube_mesh", "pcie", "infinity_fabric",
                                              "shared_memory"};
  return names;
}

HardwareDescription read_hardware_yaml(const Document& document) {
  Problems problems;
  HardwareDescription description;
  description.source = document.source;
  MapReader reader(document.root, document.source, "", problems);
  problems.throw_if_any();
  check_schema(reader, true);
  reader.missing("kind", "device, node or cluster");
  const std::optional<std::size_t> kind = reader.one_of("kind", kind_names());
  if (!kind) throw ConfigurationError(problems.list());
  switch (static_cast<Kind>(*kind)) {
    case Kind::device:
      description.device = read_device(reader);
      description.name = description.device->name;
      description.title = description.device->title;
      break;
    case Kind::node:
      read_node(reader, description);
      description.name = description.node->name;
      description.title = description.node->title;
      break;
    case Kind::cluster:
      read_cluster(reader, description);
      break;
  }
  reader.finish();
  problems.throw_if_any();
  return description;
}

Described<Device> find_device(const std::string& name) { return read_preset(name, Kind::device).device; }

std::shared_ptr<const Node> find_node(const std::string& name) { return read_preset(name, Kind::node).node; }

}  // namespace zeroplan::describe
