#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "planner/describe/machine/device_architecture.hpp"
#include "planner/describe/machine/hardware_reader.hpp"
#include "planner/describe/text/quantity.hpp"

namespace zeroplan::describe {
namespace {

constexpr FigureRange kTflops{.minimum = 1e-3, .maximum = 1e6};
constexpr FigureRange kGbytesPerSecond{.minimum = 0, .maximum = 1e6};  // 0: the device has no such link
constexpr FigureRange kLengths{.minimum = 1, .maximum = 1e9};
constexpr FigureRange kLinks{.minimum = 0, .maximum = 1000, .whole = true};

double less_reserve(const Capacity& capacity, const Figure& figure) {
  return figure.value - (capacity.driver_reserved_bytes ? capacity.driver_reserved_bytes->value : 0);
}

void check_capacity(MapReader& device, const Capacity& capacity) {
  const bool has_figure = capacity.brochure_bytes || capacity.nvml_bytes || capacity.cuda_bytes;
  if (capacity.from_host_memory && has_figure) {
    device.problem("capacity", "found host_memory: true beside a size, expected one of the two");
  }
  if (!capacity.from_host_memory && !has_figure) {
    device.problem("capacity",
                   "expected at least one of brochure_gb, nvml_mib, cuda_gib, or host_memory: true");
  }
  // Drivers differ by some MiB between the prints the figures were collected from.
  if (capacity.nvml_bytes && capacity.cuda_bytes &&
      capacity.cuda_bytes->value > 1.01 * capacity.nvml_bytes->value) {
    device.problem("capacity",
                   fmt::format("CUDA's {:.0f} bytes are more than NVML's {:.0f}: is a unit wrong?",
                               capacity.cuda_bytes->value, capacity.nvml_bytes->value));
  }
  for (const auto* figure : {&capacity.nvml_bytes, &capacity.brochure_bytes}) {
    if (*figure && less_reserve(capacity, **figure) < static_cast<double>(kMiB)) {
      device.problem("capacity",
                     fmt::format("the driver's reserve of {:.0f} bytes leaves nothing of {:.0f}",
                                 capacity.driver_reserved_bytes ? capacity.driver_reserved_bytes->value : 0,
                                 (*figure)->value));
    }
  }
}

void read_capacity(MapReader& device, Capacity& capacity) {
  const Value* map = device.map("capacity");
  if (map == nullptr) {
    device.missing("capacity", "a map with brochure_gb, nvml_mib, cuda_gib");
    return;
  }
  const std::size_t problems_before = device.problems().list().size();
  MapReader reader(*map, device.source(), device.dotted("capacity"), device.problems());
  capacity.brochure_bytes = read_bytes_figure(reader, "brochure", kMiB);
  capacity.nvml_bytes = read_bytes_figure(reader, "nvml", kMiB);
  capacity.cuda_bytes = read_bytes_figure(reader, "cuda", kMiB);
  capacity.driver_reserved_bytes = read_bytes_figure(reader, "driver_reserved", 0);
  capacity.from_host_memory = reader.boolean("host_memory").value_or(false);
  reader.finish();
  if (device.problems().list().size() == problems_before) check_capacity(device, capacity);
}

void read_overheads(MapReader& device, Overheads& overheads) {
  const Value* map = device.map("overheads");
  if (map == nullptr) return;
  MapReader reader(*map, device.source(), device.dotted("overheads"), device.problems());
  overheads.context_bytes = read_bytes_figure(reader, "context", 0);
  overheads.library_workspace_bytes = read_bytes_figure(reader, "library_workspace", 0);
  overheads.communicator_bytes = read_bytes_figure(reader, "communicator", 0);
  overheads.allocator_round_bytes = read_bytes_figure(reader, "allocator_round", 1);
  reader.finish();
}

struct Interval {
  double low = 0;
  double high = 0;
};

// A number, or [low, high] where the source gives a range.
std::optional<Interval> read_interval(MapReader& reader, std::string_view key, double minimum,
                                      double maximum) {
  const Value* value = reader.any(key);
  if (value == nullptr || value->kind == Value::Kind::null) return std::nullopt;
  if (value->kind == Value::Kind::scalar) {
    const std::optional<double> number = reader.real(key, minimum, maximum);
    if (!number) return std::nullopt;
    return Interval{*number, *number};
  }
  const auto is_number = [](const Value& item) { return item.kind == Value::Kind::scalar && !item.quoted; };
  if (value->kind == Value::Kind::list && value->items.size() == 2 &&
      std::all_of(value->items.begin(), value->items.end(), is_number)) {
    try {
      const Interval interval{parse_real(value->items[0].text, minimum, maximum),
                              parse_real(value->items[1].text, minimum, maximum)};
      if (interval.low <= interval.high) return interval;
    } catch (const std::invalid_argument& error) {
      reader.problem(key, error.what());
      return std::nullopt;
    }
  }
  reader.problem(key, "expected a number or [LOW, HIGH]");
  return std::nullopt;
}

void read_attained_matmul(MapReader& device, std::vector<AttainedMatmul>& attained) {
  const Value* list = device.list("gemm_attained");
  if (list == nullptr) return;
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    const Value& item = list->items[i];
    MapReader reader(item, device.source(), fmt::format("{}[{}]", device.dotted("gemm_attained"), i),
                     device.problems());
    if (item.kind != Value::Kind::map) continue;
    AttainedMatmul entry;
    for (const auto& [key, text] : {std::pair{"dtype", &entry.dtype}, std::pair{"shape", &entry.shape},
                                    std::pair{"source", &entry.source}}) {
      reader.missing(key, "text");
      *text = reader.string(key).value_or("");
    }
    entry.note = reader.string("note").value_or("");
    entry.used = reader.boolean("used").value_or(false);
    const std::optional<Interval> tflops = read_interval(reader, "tflops", kTflops.minimum, kTflops.maximum);
    if (item.find("tflops") == nullptr) reader.missing("tflops", "a number, [LOW, HIGH], or null");
    if (const auto fraction = read_interval(reader, "fraction_of_peak", 0, 1)) {
      entry.fraction_of_peak = fraction->low;
      entry.fraction_of_peak_high = fraction->high;
    }
    reader.finish();
    if (!tflops) continue;
    entry.tflops = tflops->low;
    entry.tflops_high = tflops->high;
    attained.push_back(std::move(entry));
  }
}

void read_attained_attention(MapReader& device, std::vector<AttainedAttention>& attained) {
  const Value* list = device.list("attention_attained");
  if (list == nullptr) return;
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    const Value& item = list->items[i];
    MapReader reader(item, device.source(), fmt::format("{}[{}]", device.dotted("attention_attained"), i),
                     device.problems());
    if (item.kind != Value::Kind::map) continue;
    AttainedAttention entry;
    for (const auto& [key, text] : {std::pair{"kernel", &entry.kernel}, std::pair{"what", &entry.what},
                                    std::pair{"source", &entry.source}}) {
      reader.missing(key, "text");
      *text = reader.string(key).value_or("");
    }
    entry.tflops = read_numbers(reader, "tflops", kTflops, "a number, or a list of them");
    entry.head_dim = reader.integer("head_dim", 1, 1 << 16);
    if (reader.has("lengths")) entry.lengths = read_numbers(reader, "lengths", kLengths, "a list of lengths");
    entry.used = reader.boolean("used").value_or(false);
    if (entry.used && (!entry.head_dim || entry.lengths.size() != entry.tflops.size())) {
      reader.problem("used", "expected head_dim, and as many lengths as tflops");
    }
    reader.finish();
    attained.push_back(std::move(entry));
  }
}

// `usual_node: {name:, reason:}`.
void read_usual_node(MapReader& reader, Device& device) {
  const Value* map = reader.map("usual_node");
  if (map == nullptr) return;
  MapReader node(*map, reader.source(), reader.dotted("usual_node"), reader.problems());
  node.missing("name", "the name of a node");
  node.missing("reason", "why this node stands for the device");
  device.usual_node = node.string("name").value_or("");
  device.usual_node_reason = node.string("reason").value_or("");
  node.finish();
}

}  // namespace

Bytes Capacity::usable_bytes() const {
  double bytes = 0;
  if (cuda_bytes) {
    bytes = cuda_bytes->value;
  } else if (nvml_bytes) {
    bytes = less_reserve(*this, *nvml_bytes);
  } else if (brochure_bytes) {
    bytes = less_reserve(*this, *brochure_bytes);
  } else if (host_bytes) {
    bytes = host_bytes->value;
  } else {
    throw std::logic_error("Capacity::usable_bytes: no figure");
  }
  return static_cast<Bytes>(bytes);
}

std::string Capacity::basis() const {
  const std::string reserve = !driver_reserved_bytes           ? ""
                              : driver_reserved_bytes->assumed ? " less an assumed driver reserve"
                                                               : " less the driver's reserve";
  if (cuda_bytes) return "CUDA's figure";
  if (nvml_bytes) return "NVML's figure" + reserve;
  if (brochure_bytes) return "the brochure's figure" + reserve;
  if (host_bytes) return "memory of this machine, shared by its ranks";
  return "unknown";
}

Device read_device(MapReader& reader) {
  Device device;
  Heading heading = read_heading(reader);
  device.name = std::move(heading.name);
  device.title = std::move(heading.title);
  device.architecture = reader.string("architecture").value_or("");
  device.facts = &find_architecture(device.architecture);
  read_capacity(reader, device.capacity);
  read_overheads(reader, device.overheads);
  device.compute_capability = read_figure(reader, "compute_capability", {.minimum = 1, .maximum = 100});
  device.multiprocessors =
      read_figure(reader, "multiprocessors", {.minimum = 1, .maximum = 100000, .whole = true});
  device.peak_fp32_tflops = read_figure(reader, "peak_fp32_tflops", kTflops);
  device.peak_tf32_tflops = read_figure(reader, "peak_tf32_tflops", kTflops);
  device.peak_fp16_tflops = read_figure(reader, "peak_fp16_tflops", kTflops);
  device.peak_bf16_tflops = read_figure(reader, "peak_bf16_tflops", kTflops);
  device.peak_fp8_tflops = read_figure(reader, "peak_fp8_tflops", kTflops);
  device.memory_gbytes_per_s = read_figure(reader, "memory_gbytes_per_s", kGbytesPerSecond);
  device.memory_measured_gbytes_per_s = read_figure(reader, "memory_measured_gbytes_per_s", kGbytesPerSecond);
  device.shortest_kernel_us = read_figure(reader, "shortest_kernel_us", {.minimum = 0, .maximum = 1e6});
  device.nvlink_links = read_figure(reader, "nvlink_links", kLinks);
  device.nvlink_gbytes_per_s = read_figure(reader, "nvlink_gbytes_per_s", kGbytesPerSecond);
  device.nccl_link_gbytes_per_s = read_figure(reader, "nccl_link_gbytes_per_s", kGbytesPerSecond);
  device.pcie_gbytes_per_s = read_figure(reader, "pcie_gbytes_per_s", kGbytesPerSecond);
  device.host_to_device_gbytes_per_s = read_figure(reader, "host_to_device_gbytes_per_s", kGbytesPerSecond);
  read_attained_matmul(reader, device.attained_matmul);
  read_attained_attention(reader, device.attained_attention);
  device.attained_collectives = read_attained_collectives(reader);
  device.calibrated = read_calibrated(reader);
  read_usual_node(reader, device);
  device.note = reader.string("note").value_or("");
  return device;
}

}  // namespace zeroplan::describe
