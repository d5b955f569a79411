#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/describe/machine/calibration.hpp"
#include "planner/describe/text/document.hpp"
#include "planner/described.hpp"
#include "planner/instructions/table.hpp"
#include "planner/units.hpp"

// The machine: a device (GPU or CPU), a node of some of them, a cluster of nodes. Read from
// hardware_profiles/*.yaml or a file of the same form (docs/hardware.md). Rates are dense (no structured
// sparsity) and one direction.
namespace zeroplan::describe {

// A figure with where it comes from. Absent where nobody published one: nothing is guessed.
struct Figure {
  double value = 0;
  std::string source;
  std::string note;
  bool assumed = false;  // taken over from another device or rule; `note` says which
};

// Three capacities of one device, which differ: what the brochure says, what NVML reports, what a CUDA
// program gets. A CPU has instead its share of the memory of the machine the program runs on.
struct Capacity {
  std::optional<Figure> brochure_bytes;
  std::optional<Figure> nvml_bytes;
  std::optional<Figure> cuda_bytes;
  std::optional<Figure> driver_reserved_bytes;  // NVML's figure less CUDA's
  std::optional<Figure> host_bytes;
  bool from_host_memory = false;  // resolve_cluster fills host_bytes

  // What a program can use: CUDA's figure, or NVML's less `driver_reserved_bytes`, or the brochure's less the
  // same, or the share of the host's memory; `basis` says which one it was. Throws std::logic_error when none
  // is known, which no description that was read or resolved can bring about.
  Bytes usable_bytes() const;
  std::string basis() const;
};

// Memory outside the model that the runtime takes before and beside the first tensor; each is a line of its
// own.
struct Overheads {
  std::optional<Figure> context_bytes;            // CUDA context, driver, loaded kernels
  std::optional<Figure> library_workspace_bytes;  // cuBLAS and friends, when not handed in
  std::optional<Figure> communicator_bytes;       // one NCCL communicator (ring) per rank
  std::optional<Figure> allocator_round_bytes;    // granularity of device allocations
};

struct DeviceArchitecture;  // device_architecture.hpp

// What a matrix product reached. Where the source gives a range, `tflops` and `fraction_of_peak` are its
// lower ends.
struct AttainedMatmul {
  std::string dtype;
  std::string shape;
  double tflops = 0;
  double tflops_high = 0;
  std::optional<double> fraction_of_peak, fraction_of_peak_high;
  bool used = false;  // predictions take it for what large 16-bit products reach
  std::string source;
  std::string note;
};

// What an attention kernel reached. `head_dim` and `lengths` are stated where `tflops` has one rate for each
// length.
struct AttainedAttention {
  std::string kernel;
  std::string what;
  std::optional<std::int64_t> head_dim;
  std::vector<double> lengths;
  std::vector<double> tflops;
  bool used = false;  // predictions take it for the forward of fused attention
  std::string source;
};

enum class Collective { all_reduce, all_gather, reduce_scatter };
// As files have them, in the order of the enumeration.
const std::vector<std::string>& collective_names();
// The instruction, and the collective whose measurements stand for an instruction: a broadcast is gathered.
constexpr program::Op op_of(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return program::Op::all_reduce;
    case Collective::reduce_scatter:
      return program::Op::reduce_scatter;
    case Collective::all_gather:
      break;
  }
  return program::Op::all_gather;
}
constexpr Collective collective_of(program::Op op) {
  for (const Collective one : {Collective::all_reduce, Collective::reduce_scatter}) {
    if (op_of(one) == op) return one;
  }
  return Collective::all_gather;
}
// What each of n ranks sends in a ring, over the bytes of the whole vector; nccl-tests' bus bandwidth is that
// by the time.
constexpr double ring_share(Collective collective, double n) {
  return program::sent_over_ring(op_of(collective), 1, n);
}

// What a collective reached, at sizes of the whole vector that double from `first_bytes` on. Bus bandwidth is
// nccl-tests': bytes / time x 2(n-1)/n for all-reduce, x (n-1)/n for the other two, with n = `devices`.
struct AttainedCollective {
  Collective collective = Collective::all_reduce;
  std::int64_t devices = 0;  // that took part, on all nodes together
  std::int64_t nodes = 1;
  std::optional<program::DataType> type;  // of its elements; none: of any
  double first_bytes = 0;
  std::vector<double> busbw_gbytes_per_s;
  std::vector<double> seconds;  // of each size, from busbw; at most those of the next size
  std::string source;
  std::string note;
  bool assumed = false;
};

struct Device {
  std::string name;
  std::string title;
  std::string architecture;
  const DeviceArchitecture* facts = nullptr;  // the architecture's, where the device was read from a file
  Capacity capacity;
  Overheads overheads;
  std::optional<Figure> compute_capability, multiprocessors;
  std::optional<Figure> peak_fp32_tflops, peak_tf32_tflops, peak_fp16_tflops, peak_bf16_tflops,
      peak_fp8_tflops;
  std::optional<Figure> memory_gbytes_per_s, memory_measured_gbytes_per_s;
  std::optional<Figure>
      shortest_kernel_us;  // measured: no kernel takes less from its start to that of the next
  std::optional<Figure> nvlink_links, nvlink_gbytes_per_s;  // all links of the device together
  std::optional<Figure> nccl_link_gbytes_per_s;             // what NCCL counts for one link
  std::optional<Figure> pcie_gbytes_per_s, host_to_device_gbytes_per_s;
  std::vector<AttainedMatmul> attained_matmul;
  std::vector<AttainedAttention> attained_attention;
  std::vector<AttainedCollective> attained_collectives;  // on one node
  std::vector<CalibratedRates> calibrated;               // by devices at work at once
  std::string usual_node;         // the node preset that stands for a device asked for alone; may be empty
  std::string usual_node_reason;  // why that one
  std::string note;               // what is to be known of the description
};

enum class Fabric { nvswitch, cube_mesh, pcie, infinity_fabric, shared_memory };

struct Node {
  std::string name;
  std::string title;
  std::string device;
  std::int64_t devices = 0;
  std::string devices_source;
  Fabric fabric = Fabric::pcie;
  std::optional<Figure> link_gbytes_per_s_per_device;  // inside the node, one direction
  std::optional<Figure> nics, nic_gbits_per_s;         // nic_gbits_per_s: of each
  std::optional<Figure> internode_gbytes_per_s;        // of the whole node, one direction
  std::optional<Figure> host_memory_bytes;
  std::optional<Figure>
      host_optimizer_gbytes_per_s;  // of a fused optimizer on the node's processors, all ranks
  std::vector<AttainedCollective> attained_collectives;  // inside or across nodes
  std::string note;
};

// What one hardware file says. A device: `node` and `nodes` are empty; a node: `nodes` is empty.
struct HardwareDescription {
  std::string name;
  std::string title;
  Described<Device> device;
  std::shared_ptr<const Node> node;
  std::optional<std::int64_t> nodes;
  std::string source;  // file it was read from
};

// How the nodes of a device that was asked for alone were chosen.
struct AssumedNode {
  std::string name;    // "dgx-a100", or what the node is taken to be
  std::string reason;  // half a sentence
};

// What --hw names, resolved: `nodes` nodes with `devices_per_node` devices in use. A device asked for alone is
// put into its usual nodes, and `assumed_node` says so.
struct Cluster {
  std::string name;
  Described<Device> device;
  std::shared_ptr<const Node> node;  // null: not described
  std::int64_t nodes = 1;
  std::int64_t devices_per_node = 1;
  std::string description_source;
  std::optional<AssumedNode> assumed_node;        // of a device that was asked for alone, unless it is a CPU
  std::optional<Figure> given_host_memory_bytes;  // of a node, by --host-memory: goes before the description

  // Of a node; null where nobody described it.
  const Figure* host_memory() const {
    if (given_host_memory_bytes) return &*given_host_memory_bytes;
    return node && node->host_memory_bytes ? &*node->host_memory_bytes : nullptr;
  }
  std::int64_t devices() const { return nodes * devices_per_node; }
};

// `argument`: a device, node or cluster preset (or a documented alias such as v100-32gb, dgx2), or a YAML
// file. `nodes`, `gpus`: the user's counts, if given; a count that the machine does not allow is a
// ConfigurationError that says the arithmetic. A cluster preset may be used in part, a node too when it is
// the only one.
Cluster resolve_cluster(const std::string& argument, std::optional<std::int64_t> nodes,
                        std::optional<std::int64_t> gpus);

// Reads a device, node or cluster (docs/hardware.md), strictly. A device or node that it names is looked up
// among the presets. Throws ConfigurationError.
HardwareDescription read_hardware_yaml(const Document& document);

struct HardwareName {
  std::string name;
  enum class Kind { device, node, cluster } kind;
  std::string title;
  std::vector<std::string> aliases;
};
// The presets, sorted by file. Costs no parsing.
std::vector<HardwareName> preset_hardware_names();

// Presets by name or alias, in any case, with or without '-', '_' and '.'; throws ConfigurationError with the
// nearest name.
Described<Device> find_device(const std::string& name);
std::shared_ptr<const Node> find_node(const std::string& name);

// Memory of the machine the program runs on: MemTotal of /proc/meminfo, or the control group's limit where
// that is lower. Throws ConfigurationError where the system does not say.
Bytes host_memory_bytes();

// The same from the text of the two files; `cgroup_limit` may be empty or "max".
std::optional<Bytes> parse_host_memory(const std::string& meminfo, const std::string& cgroup_limit);

}  // namespace zeroplan::describe
