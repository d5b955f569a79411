#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zeroplan::accuracy {

enum class Outcome { ok, out_of_memory, failed };
enum class MemoryKind { allocated, active, reserved, nvidia_smi, unspecified };
std::string_view name_of(MemoryKind kind);

// Memory somebody measured, as the interval that rounding and the doubt between GB and GiB leave.
struct MeasuredMemory {
  MemoryKind kind = MemoryKind::unspecified;
  double low_gib = 0;
  double high_gib = 0;
  bool is_upper_bound = false;  // the allocator's cache filled the card: less would have done
};

// What a layer is made of: docs/accuracy.md has the words of each.
enum class Block { gpt2, opt, mpt, llama, qwen, nemotron, falcon };

// One run as a file of runs describes it: text as it stands there, numbers where they are stated.
struct Run {
  std::string file;
  int line = 0;
  std::string id;
  std::string source;
  char quality = 'C';
  std::string not_evidence;  // why the run says nothing about predictions; empty where it does
  std::string not_scored;    // why nothing of the run is scored; empty where something is

  std::string model;
  std::optional<Block> block;  // not stated: told by the number of parameters
  std::optional<bool> tied_embeddings;
  std::optional<double> parameters_billions;
  std::optional<std::int64_t> layers, hidden, ffn, heads, kv_heads, vocabulary, sequence;

  std::optional<std::int64_t> gpus, gpus_per_node;
  std::string hardware;  // the preset's name; empty: told by the GPU
  std::string gpu_type;
  std::string gpu_family;
  std::optional<double> gpu_memory_gb;
  std::optional<bool> pcie;          // GPUs of a node are connected by PCIe alone; not stated: as the preset
  std::string interconnect;          // for people
  std::optional<std::int64_t> nics;  // of a node
  std::optional<double> node_gbits_per_s;  // out of a node, of all of them; not stated: as the preset

  std::optional<std::int64_t> data_parallel, tensor_parallel, pipeline_parallel, context_parallel,
      expert_parallel;
  std::optional<std::int64_t> zero_stage;
  std::optional<std::int64_t>
      shard_ranks;  // that states are divided over; not stated: all data-parallel ones
  std::optional<std::int64_t> micro_batch, global_batch, gradient_accumulation;
  std::optional<std::string> engine;  // not stated: the default
  std::optional<bool> overlap, dropout, partition_activations;
  std::string precision, optimizer, recompute, flash_attention, offload, compile;

  std::optional<MeasuredMemory> memory;
  std::optional<double> step_seconds;
  Outcome outcome = Outcome::ok;
};

// Returns the runs of a CSV file with the columns of measured_runs.csv (docs/accuracy.md). Throws
// ConfigurationError with every value that is wrong, by file, line and column, and with every column that lacks or
// is not known.
std::vector<Run> read_runs(std::string_view text, const std::string& source);

}  // namespace zeroplan::accuracy
