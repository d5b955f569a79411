#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/describe/machine/cluster.hpp"

// What devices of one architecture have in common for the time of kernels: hardware_profiles/architectures
// (docs/hardware.md).
namespace zeroplan::describe {

// A tile of the result that matrix libraries compute at once, and what of the attainable rate it reaches.
struct Tile {
  double rows = 0, columns = 0, efficiency = 1;
};

struct DeviceArchitecture {
  std::string name;  // as Device::architecture has it
  std::string title;
  // Fractions of the device's peaks that large products, streaming kernels and fused attention reach, where the
  // device's own file has no measurement.
  Figure matmul_fraction, memory_fraction, attention_fraction;
  // What whole steps reach of the products' attainable rate, relative to an A100.
  Figure sustained_fraction;
  // The forward of fused attention reaches attention_fraction x s / (s + half length) x d / (d + half head) of
  // the peak for heads of width d at length s; the backward `attention_backward` of that.
  Figure attention_half_length, attention_half_head, attention_backward;
  // GB/s of each multiprocessor: an engine's elementwise_factor is over that.
  Figure elementwise_gbytes_per_s;
  std::vector<Tile> tiles;
  Figure
      tile_overhead_depth;  // steps of the inner dimension that filling and emptying a tile's pipeline costs
  // 16-bit products with a size that is no multiple of this reach `unaligned_fraction` of the fp32 peak.
  std::optional<Figure> aligned_size, unaligned_fraction;
  // GB/s that a fused optimizer moves on the processors of a node, all ranks together.
  std::optional<Figure> host_optimizer_gbytes_per_s;
  bool one_stream = false;  // kernels and collectives run one after the other, at no engine's pace
};

// The architecture of this name; "other" where no file has it. What a file leaves out is as in "other".
const DeviceArchitecture& find_architecture(const std::string& name);

// What is taken for an architecture without a file.
const DeviceArchitecture& other_architecture();

// The processors of a node.
const DeviceArchitecture& host_architecture();

// The device's own, also of a device that was made by hand.
inline const DeviceArchitecture& architecture_of(const Device& device) {
  return device.facts != nullptr ? *device.facts : find_architecture(device.architecture);
}

}  // namespace zeroplan::describe
