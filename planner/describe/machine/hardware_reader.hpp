#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/describe/machine/cluster.hpp"
#include "planner/describe/text/document.hpp"
#include "planner/describe/text/embedded.hpp"

// The parts that the readers of devices, nodes and clusters share.
namespace zeroplan::describe {

struct FigureRange {
  double minimum = 0;
  double maximum = 0;
  bool whole = false;
};

// `key: {value:, source:, note:, assumed:}`, or a bare number, whose source is then the file itself. Absent
// when the key or the value is absent or null.
std::optional<Figure> read_figure(MapReader& reader, std::string_view key, FigureRange range);

// A size whose unit is in the key: `stem` with one of _bytes, _kb, _mb, _gb, _tb (powers of 1000) or _kib,
// _mib, _gib, _tib (powers of 1024). At most one of them. The figure is in whole bytes, from `minimum` to 1
// PiB.
std::optional<Figure> read_bytes_figure(MapReader& reader, std::string_view stem, Bytes minimum);

// A number, or a list of them, each from `minimum` to `maximum`; empty after a problem, which says "missing"
// where the key is. `expected`: what belongs there.
std::vector<double> read_numbers(MapReader& reader, std::string_view key, FigureRange range,
                                 std::string_view expected);

// As files have them, in the order of Fabric.
const std::vector<std::string>& fabric_names();

// The names of types in files, in the order of program::DataType.
const std::vector<std::string>& type_names();

// The list `calibrated` of a device.
std::vector<CalibratedRates> read_calibrated(MapReader& reader);

// The list `collectives_attained` of a device or node.
std::vector<AttainedCollective> read_attained_collectives(MapReader& reader);

// `name`, `title`, `aliases`: what devices, nodes and clusters begin with. `title` is the name where absent.
struct Heading {
  std::string name;
  std::string title;
};
Heading read_heading(MapReader& reader);

// The keys of a device after its heading; enters problems, does not finish the reader.
Device read_device(MapReader& reader);

// The shipped file of this kind with this name or alias, or nullptr. Reads only the files' first lines.
const EmbeddedFile* find_preset(std::string_view name, HardwareName::Kind kind);
const EmbeddedFile* find_preset(std::string_view name);

// "found ..., expected ...; nearest: ..." for a name that is no preset of these kinds.
std::string unknown_preset(std::string_view name, std::initializer_list<HardwareName::Kind> kinds,
                           std::string_view expected);

}  // namespace zeroplan::describe
