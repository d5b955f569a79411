#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "planner/describe/machine/hardware_reader.hpp"
#include "planner/instructions/table.hpp"

// The list `calibrated` of a device (docs/hardware.md).
namespace zeroplan::describe {
namespace {

constexpr std::int64_t kMostDevices = 1'000'000;
constexpr FigureRange kRate{.minimum = 1e-9, .maximum = 1e9};  // in units of 1e9 a second
constexpr FigureRange kSize{.minimum = 1, .maximum = 1e15};
constexpr FigureRange kSpread{.minimum = 0, .maximum = 1e6};
constexpr double kLargestSkew = 100;
constexpr double kGiga = 1e9;

// What a device executes, and the names of that.
const std::vector<program::Op>& kernels() {
  static const std::vector<program::Op> ops = [] {
    std::vector<program::Op> list;
    for (const program::InstructionRow& row : program::kInstructions) {
      if (program::is_executed_by_device(row.op)) list.push_back(row.op);
    }
    return list;
  }();
  return ops;
}
const std::vector<std::string>& kernel_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const program::Op op : kernels()) list.emplace_back(program::name_of(op));
    return list;
  }();
  return names;
}

// [fp32, none, bf16]: operands that are not named are absent.
std::optional<OperandTypes> read_types(MapReader& reader) {
  reader.missing("operands", "a list of types, none where there is no operand");
  const Value* list = reader.list("operands");
  if (list == nullptr) return std::nullopt;
  const std::vector<std::string>& names = type_names();
  if (list->items.size() > program::kMaxOperands) {
    reader.problem("operands", fmt::format("found {} types, expected at most {}", list->items.size(),
                                           program::kMaxOperands));
    return std::nullopt;
  }
  OperandTypes types = 0;
  for (std::size_t i = 0; i < program::kMaxOperands; ++i) {
    OperandTypes type = kAbsentType;
    if (i < list->items.size() && list->items[i].text != "none") {
      const auto found = std::find(names.begin(), names.end(), list->items[i].text);
      if (found == names.end()) {
        const std::string nearest = nearest_name(list->items[i].text, names);
        reader.problem("operands",
                       fmt::format("found {}, expected none or one of {}{}", quoted(list->items[i].text),
                                   fmt::join(names, ", "), nearest.empty() ? "" : "; nearest: " + nearest));
        return std::nullopt;
      }
      type = static_cast<OperandTypes>(std::distance(names.begin(), found));
    }
    types |= type << (kBitsPerType * i);
  }
  return types;
}

// Whether every axis is there and ascends; the number of points of the grid in `points`.
bool read_axes(MapReader& reader, MeasuredKernel& kernel, std::size_t& points) {
  const std::vector<std::string>& names = axis_names(sizes_of(kernel.kind.op));
  bool good = true;
  points = 1;
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::vector<double>& axis = kernel.axes[i];
    axis = read_numbers(reader, names[i], kSize, "the sizes of the measured points");
    if (std::adjacent_find(axis.begin(), axis.end(), std::greater_equal<>()) != axis.end()) {
      reader.problem(names[i], "expected sizes that ascend");
      good = false;
    }
    good = good && !axis.empty();
    points *= std::max<std::size_t>(1, axis.size());
  }
  return good;
}

std::optional<MeasuredKernel> read_kernel(MapReader& reader) {
  MeasuredKernel kernel;
  reader.missing("op", "the name of an instruction");
  const std::optional<std::size_t> op = reader.one_of("op", kernel_names());
  const std::optional<OperandTypes> types = read_types(reader);
  if (!op) return std::nullopt;
  kernel.kind.op = kernels()[*op];
  if (program::has_activation_kind(kernel.kind.op)) {
    reader.missing("activation", fmt::format("one of {}", fmt::join(activation_names(), ", ")));
    kernel.kind.variant =
        static_cast<std::uint32_t>(reader.one_of("activation", activation_names()).value_or(0));
  }
  const bool streaming = sizes_of(kernel.kind.op) == KernelSizes::streaming;
  std::size_t points = 0;
  const bool has_axes = read_axes(reader, kernel, points);
  const std::string_view rate_key = streaming ? "gbytes_per_s" : "gflops";
  kernel.rates = read_numbers(reader, rate_key, kRate, "one rate for each point");
  if (reader.has("spread")) kernel.spread = read_numbers(reader, "spread", kSpread, "one for each point");
  reader.finish();
  if (!types || !has_axes || kernel.rates.empty()) return std::nullopt;
  kernel.kind.types = *types;
  for (const auto& [key, values] :
       {std::pair{rate_key, &kernel.rates}, std::pair{std::string_view("spread"), &kernel.spread}}) {
    if (values->size() == points || (values->empty() && key != rate_key)) continue;
    reader.problem(
        key, fmt::format("found {} numbers, expected one for each of the {} points", values->size(), points));
    return std::nullopt;
  }
  for (double& rate : kernel.rates) rate *= kGiga;
  return kernel;
}

CalibratedRates read_rates(MapReader& reader) {
  reader.missing("devices", "how many devices were at work");
  reader.missing("source", "where the figures come from");
  const std::int64_t devices = reader.integer("devices", 1, kMostDevices).value_or(1);
  std::string source = reader.string("source").value_or("");
  const double skew = reader.real("skew", 0, kLargestSkew).value_or(0);
  std::vector<MeasuredKernel> kernels;
  reader.missing("kernels", "a list of maps");
  if (const Value* list = reader.list("kernels")) {
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      MapReader item(list->items[i], reader.source(), fmt::format("{}[{}]", reader.dotted("kernels"), i),
                     reader.problems());
      if (list->items[i].kind != Value::Kind::map) continue;
      if (auto kernel = read_kernel(item)) kernels.push_back(std::move(*kernel));
    }
  }
  reader.finish();
  return {devices, std::move(kernels), std::move(source), skew};
}

}  // namespace

std::vector<CalibratedRates> read_calibrated(MapReader& reader) {
  std::vector<CalibratedRates> calibrated;
  const Value* list = reader.list("calibrated");
  if (list == nullptr) return calibrated;
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    MapReader item(list->items[i], reader.source(), fmt::format("{}[{}]", reader.dotted("calibrated"), i),
                   reader.problems());
    if (list->items[i].kind == Value::Kind::map) calibrated.push_back(read_rates(item));
  }
  return calibrated;
}

}  // namespace zeroplan::describe
