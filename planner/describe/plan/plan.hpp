#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/describe/machine/cluster.hpp"
#include "planner/describe/model/model.hpp"
#include "planner/describe/plan/engine.hpp"
#include "planner/describe/plan/optimizer.hpp"
#include "planner/describe/text/document.hpp"
#include "planner/described.hpp"
#include "planner/units.hpp"

// How the training is laid out on the cluster.
namespace zeroplan::describe {

// fp16 has dynamic loss scaling; fp16 and bf16 have fp32 master weights.
enum class Precision { fp32, fp16, bf16 };
enum class Recompute { none, selective, full };
enum class AttentionKernel { flash, materialized, materialized_fp32 };  // how scores are kept, if at all
enum class Offload { none, optimizer, all };  // `all`: optimizer states and parameters

// Every degree of freedom of a plan, resolved. Names as in the ZeRO paper (Sections 5 to 8) where it has
// them.
struct Plan {
  std::int64_t data_parallel = 1;    // N_d
  std::int64_t tensor_parallel = 1;  // N_m, the paper's model parallelism
  int zero_stage = 0;                // 0 plain DP, 1 P_os, 2 P_os+g, 3 P_os+g+p
  // Hybrid sharding (HSDP, MiCS): so many neighbouring data-parallel ranks hold one copy of what ZeRO partitions. 0: all.
  std::int64_t shard = 0;
  // hpZ of ZeRO++: so many neighbours hold a second copy of the parameters, from which backward gathers. 0: none.
  std::int64_t secondary_shard = 0;
  std::int64_t micro_batch = 1;  // sequences per data-parallel rank and pass
  std::int64_t gradient_accumulation = 1;
  std::int64_t sequence = 1024;
  Precision precision = Precision::bf16;
  Described<Optimizer> optimizer;
  Recompute recompute = Recompute::none;
  std::int64_t checkpoint_interval = 1;  // layers per checkpoint under full recomputation
  AttentionKernel attention = AttentionKernel::flash;
  bool dropout = false;
  bool partition_activations = false;  // P_a
  bool offload_activations = false;    // P_a+cpu
  Offload offload = Offload::none;
  bool constant_buffers = true;   // C_B
  Bytes bucket_bytes = 0;         // size of C_B's buffer
  bool contiguous_memory = true;  // M_D
  bool overlap = true;            // data-parallel traffic of forward and backward runs beside the kernels
  Described<Engine> engine;
  Bytes reserve_bytes = 0;  // memory the user wants left free on each device

  std::int64_t shard_ranks() const { return shard > 0 ? shard : data_parallel; }
  std::int64_t devices() const { return data_parallel * tensor_parallel; }
  std::int64_t global_batch() const { return micro_batch * gradient_accumulation * data_parallel; }
};

// Where a value of the user stood. `key` is empty where the source alone names it (a command line option).
struct PlanOrigin {
  std::string source;
  int line = 0;
  std::string key;
};

// What the user said; everything else is derived or assumed. The keys of -f plan.yaml and of --set are the
// field names in `plan_keys()`, which are also the names of the command line's options with '-' for '_'.
struct PlanOptions {
  std::optional<std::int64_t> gpus, nodes;
  std::optional<std::int64_t> dp, tp, zero, shard, secondary_shard, micro_batch, grad_accum, global_batch,
      seq, checkpoint_interval;
  std::optional<Precision> dtype;
  std::optional<std::string> optimizer, engine;
  std::optional<Recompute> recompute;
  std::optional<AttentionKernel> attention;
  std::optional<Offload> offload;
  std::optional<bool> dropout, partition_activations, offload_activations, constant_buffers,
      contiguous_memory, overlap;
  std::optional<Bytes> bucket, reserve;
  std::optional<Bytes> host_memory;  // of each node, where its description says none or another

  // A bucket in elements of a gradient, from a DeepSpeed configuration; `bucket` wins. `bucket_from_hidden`:
  // "auto", hidden x hidden elements.
  std::optional<Elements> bucket_elements;
  bool bucket_from_hidden = false;
  // Hybrid sharding over the ranks of a node, however many those are; `shard` wins.
  bool shard_inside_node = false;
  // P_a as DeepSpeed means it: over one tensor-parallel rank nothing is divided, which is no error.
  bool partition_where_possible = false;

  // What a file said and the plan does not hold, to be shown with every answer.
  std::vector<std::string> notes;

  // By key, for messages; a key that is not here is named as the option of the command line.
  std::map<std::string, PlanOrigin, std::less<>> origins;
};

struct PlanKey {
  std::string name;         // "micro_batch"
  std::string placeholder;  // "N", "SIZE", "none|selective|full"
  std::string help;
};
const std::vector<PlanKey>& plan_keys();

// Enters one `key=value`, as text, into `options`; `source` says where it stood (a file, "--set", "--tp").
// '-' and '_' are alike, `mp` is `tp`, `zero_stage` is `zero`. A null value leaves the key open. Problems
// name the nearest key or value.
void set_plan_option(PlanOptions& options, std::string_view key, const Value& value,
                     const std::string& source, Problems& problems);

// A whole plan file (docs/plans.md): the keys above, and optionally `model` and `hw`, which are returned
// beside them.
struct PlanFile {
  std::string format;   // "zeroplan", "DeepSpeed" or "accelerate"
  PlanOptions options;  // its notes: what was read differently or left out
  std::optional<std::string> model, hardware;
  std::vector<std::string>
      missing;  // what this format cannot say and a plan needs: "model", "hw", "micro_batch", "seq"
};
PlanFile read_plan_yaml(const Document& document);

// -f FILE: a plan file of ours (YAML or JSON), a DeepSpeed configuration, or a configuration of accelerate,
// recognised by their keys. Files of other programs are refused by what they are (foreign_file.hpp). Throws
// ConfigurationError.
PlanFile read_plan_file(const std::string& path);
PlanFile read_plan_document(const Document& document);

// Values of `over` win; notes of both are kept.
PlanOptions merge(const PlanOptions& base, const PlanOptions& over);

// One value that the user left open and we chose.
struct Assumption {
  std::string key;
  std::string value;
  std::string reason;
};

struct ResolvedPlan {
  Plan plan;
  Cluster cluster;
  std::vector<Assumption> assumptions;
  std::vector<std::string> notes;  // of the options, and of what resolving left out
};

// Derives what is left open, checks every rule (docs/plans.md lists them) and throws ConfigurationError with
// every rule broken. `hardware` is the --hw argument.
ResolvedPlan resolve_plan(const PlanOptions& options, const Model& model, const std::string& hardware);

// The rules that tie a plan to a model: heads % tp, hidden % tp, offload needs ZeRO, P_a needs full
// recomputation and tp > 1, sizes that fit 63 bits ... (docs/plans.md). Also called by tests with plans made
// by hand. A problem's source is the command line option ("--micro-batch"), its key is empty.
void check_plan(const Plan& plan, const Model& model, Problems& problems);

// Compute type's bytes per element.
constexpr Bytes bytes_of(Precision precision) { return precision == Precision::fp32 ? 4 : 2; }

// Bytes of an accumulated gradient's element under the engine.
Bytes gradient_bytes(const Engine& engine, Precision precision);

// "--micro-batch" for "micro_batch".
std::string option_name(std::string_view key);

std::string_view name_of(Precision value);
std::string_view name_of(Recompute value);
std::string_view name_of(AttentionKernel value);
std::string_view name_of(Offload value);

}  // namespace zeroplan::describe
