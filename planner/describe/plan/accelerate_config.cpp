#include "planner/describe/plan/accelerate_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "planner/describe/plan/accelerate_keys.hpp"

namespace zeroplan::describe {
namespace {

struct Strategy {
  std::string_view name;
  int zero = 0;
  bool hybrid = false;
};

constexpr std::int64_t kDefaultZeroStage = 2;  // of accelerate's DeepSpeedPlugin

// In the order of torch.distributed.fsdp.ShardingStrategy, whose values accelerate also writes (1 to 5).
constexpr std::array<Strategy, 5> kStrategies = {{
    {"FULL_SHARD", 3, false},
    {"SHARD_GRAD_OP", 2, false},
    {"NO_SHARD", 0, false},
    {"HYBRID_SHARD", 3, true},
    {"HYBRID_SHARD_ZERO2", 2, true},
}};

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  names.reserve(kStrategies.size());
  for (const Strategy& strategy : kStrategies) names.emplace_back(strategy.name);
  return names;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

// What is left of a section when its keys have been read.
void settle(MapReader& map, PlanFile& file) {
  settle_keys(map, accelerate_keys(map.path()), AskedKeys::follow_the_table, file.options.notes);
}

std::optional<Strategy> read_strategy(MapReader& map, std::string_view key) {
  const auto text = map.string(key);
  if (!text) return std::nullopt;
  for (std::size_t i = 0; i < kStrategies.size(); ++i) {
    if (upper(*text) == kStrategies[i].name || *text == std::to_string(i + 1)) return kStrategies[i];
  }
  map.one_of(key, strategy_names());
  return std::nullopt;
}

// Version 1 has a strategy, which newer files write under fsdp_reshard_after_forward; in version 2 that key is a
// boolean that takes its place (default true).
Strategy read_sharding(MapReader& map, PlanFile& file) {
  constexpr std::string_view kStrategy = "fsdp_sharding_strategy";
  constexpr std::string_view kReshard = "fsdp_reshard_after_forward";
  const bool second = map.integer("fsdp_version", 1, 2).value_or(1) == 2;
  if (second) {
    if (map.has(kStrategy)) {
      file.options.notes.push_back(note_at(
          map, kStrategy, "passed over with fsdp_version 2, where fsdp_reshard_after_forward says it"));
    }
    return map.boolean(kReshard).value_or(true) ? kStrategies[0] : kStrategies[1];
  }
  const auto strategy = read_strategy(map, kStrategy);
  if (!strategy) return read_strategy(map, kReshard).value_or(kStrategies[0]);
  if (map.has(kReshard)) {
    file.options.notes.push_back(note_at(map, kReshard, "passed over beside fsdp_sharding_strategy"));
  }
  return *strategy;
}

void read_precision(MapReader& root, PlanFile& file) {
  const Value* value = root.any("mixed_precision");
  if (value == nullptr || value->kind == Value::Kind::null) return;
  // Writers of YAML turn an unquoted no into false.
  if (value->kind == Value::Kind::scalar && upper(value->text) == "FALSE") {
    file.options.notes.push_back(
        note_at(root, "mixed_precision", fmt::format("{} is taken as no", zeroplan::quoted(value->text))));
    file.options.dtype = Precision::fp32;
    return;
  }
  const auto index = root.one_of("mixed_precision", {"no", "fp16", "bf16", "fp8"});
  if (index == 3) root.problem("mixed_precision", "found \"fp8\", which is not modelled, expected bf16");
  constexpr std::array<Precision, 3> kPrecisions = {Precision::fp32, Precision::fp16, Precision::bf16};
  if (index && *index < kPrecisions.size()) file.options.dtype = kPrecisions[*index];
}

void read_size(MapReader& root, std::string_view key, std::string_view plan_key,
               std::optional<std::int64_t> PlanOptions::*member, PlanOptions& options) {
  const Value* value = root.any(key);
  if (value != nullptr && value->kind == Value::Kind::scalar && value->text == "auto") return;
  options.*member = root.integer(key, 1, 1'000'000);
  if (value != nullptr) {
    options.origins.insert_or_assign(std::string(plan_key),
                                     PlanOrigin{root.source(), value->line, root.dotted(key)});
  }
}

// Shards inside a node and replicas across nodes.
void shard_inside_nodes(MapReader& root, PlanOptions& options) {
  const std::int64_t nodes = options.nodes.value_or(1);
  if (options.gpus && *options.gpus % nodes != 0) {
    root.problem("num_processes",
                 fmt::format("found \"{}\", expected a multiple of num_machines {}", *options.gpus, nodes));
    return;
  }
  options.shard_inside_node = true;
}

// Without a policy accelerate wraps nothing (FullyShardedDataParallelPlugin), and then the whole model is one unit.
void note_wrapping(MapReader& map, PlanFile& file) {
  constexpr std::string_view kKey = "fsdp_auto_wrap_policy";
  const std::string policy = upper(map.string(kKey).value_or("NO_WRAP"));
  if (policy == "TRANSFORMER_BASED_WRAP") return;
  const std::string_view what =
      policy == "NO_WRAP"
          ? "all parameters are gathered at once, with whole gradients beside them: at least 4 bytes "
            "per parameter in 16 bits, more than is planned here"
          : "units are cut by their size";
  file.options.notes.push_back(
      note_at(map, kKey,
              fmt::format("{}, which is not modelled: {}. Planned as TRANSFORMER_BASED_WRAP, layer by layer",
                          map.has(kKey) ? "found " + zeroplan::quoted(policy)
                                        : "missing, which accelerate takes for NO_WRAP",
                          what)));
}

void read_sharded(MapReader& root, PlanFile& file) {
  const Value* section = root.map("fsdp_config");
  if (section == nullptr) {
    root.missing("fsdp_config", "a map with fsdp_sharding_strategy or fsdp_version");
    return;
  }
  MapReader map(*section, root.source(), "fsdp_config", root.problems());
  const Strategy strategy = read_sharding(map, file);
  file.options.zero = strategy.zero;
  if (const Value* value = map.any("fsdp_sharding_strategy")) {
    file.options.origins.insert_or_assign(
        "zero", PlanOrigin{root.source(), value->line, map.dotted("fsdp_sharding_strategy")});
  }
  if (map.boolean("fsdp_offload_params").value_or(false)) {
    file.options.offload = Offload::all;
    if (strategy.zero != 3) {
      map.problem("fsdp_offload_params",
                  "found true without full sharding, which is not modelled, expected FULL_SHARD");
    }
  }
  file.options.recompute =
      map.boolean("fsdp_activation_checkpointing").value_or(false) ? Recompute::full : Recompute::none;
  if (strategy.zero > 0) note_wrapping(map, file);
  settle(map, file);
  if (strategy.hybrid) shard_inside_nodes(root, file.options);
}

void read_fsdp(MapReader& root, PlanFile& file) {
  file.options.engine = "fsdp2";
  read_sharded(root, file);
}

// The device of an offload: whether it is the CPU.
bool is_on_cpu(MapReader& map, std::string_view key) {
  const auto device = map.one_of(key, {"none", "cpu", "nvme"});
  if (device == 2) map.problem(key, "found \"nvme\", which is not modelled, expected none or cpu");
  return device == 1;
}

void read_deepspeed(MapReader& root, PlanFile& file) {
  PlanOptions& options = file.options;
  options.engine = "deepspeed";
  const Value* section = root.map("deepspeed_config");
  if (section == nullptr) {
    root.missing("deepspeed_config", "a map with zero_stage, or the DeepSpeed file itself with -f");
    return;
  }
  MapReader map(*section, root.source(), "deepspeed_config", root.problems());
  settle(map, file);
  if (map.has("deepspeed_config_file")) return;
  options.zero = map.integer("zero_stage", 0, 3).value_or(kDefaultZeroStage);
  if (const Value* stage = map.any("zero_stage")) {
    options.origins.insert_or_assign("zero",
                                     PlanOrigin{root.source(), stage->line, map.dotted("zero_stage")});
  }
  read_size(map, "gradient_accumulation_steps", "grad_accum", &PlanOptions::grad_accum, options);
  const bool optimizer = is_on_cpu(map, "offload_optimizer_device");
  const bool parameters = is_on_cpu(map, "offload_param_device");
  if (parameters && !optimizer) {
    map.problem("offload_param_device",
                "found parameters offloaded without the optimizer, which is not modelled, expected "
                "offload_optimizer_device cpu too");
  }
  options.offload = parameters ? Offload::all : (optimizer ? Offload::optimizer : Offload::none);
  const std::string_view key = parameters ? "offload_param_device" : "offload_optimizer_device";
  if (const Value* device = map.any(key)) {
    options.origins.insert_or_assign("offload", PlanOrigin{root.source(), device->line, map.dotted(key)});
  }
}

void read_plain(MapReader&, PlanFile& file) {
  file.options.engine = "pytorch";
  file.options.zero = 0;
}

void read_parallelism(MapReader& root, PlanFile& file) {
  const Value* section = root.map("parallelism_config");
  if (section == nullptr) return;
  MapReader map(*section, root.source(), "parallelism_config", root.problems());
  read_size(map, "parallelism_config_tp_size", "tp", &PlanOptions::tp, file.options);
  read_size(map, "parallelism_config_dp_shard_size", "dp", &PlanOptions::dp, file.options);
  settle(map, file);
}

struct Kind {
  std::string_view type;
  std::string_view format;
  std::string_view section;  // the map that it reads
  void (*read)(MapReader& root, PlanFile& file);
};

constexpr std::array<Kind, 4> kKinds = {{
    {"FSDP", "accelerate FSDP", "fsdp_config", read_fsdp},
    {"DEEPSPEED", "accelerate DeepSpeed", "deepspeed_config", read_deepspeed},
    {"MULTI_GPU", "accelerate", "", read_plain},
    {"NO", "accelerate", "", read_plain},
}};

// Writers of YAML turn an unquoted NO into false.
const Kind* find_kind(const std::string& type) {
  const std::string wanted = upper(type) == "FALSE" ? "NO" : upper(type);
  const auto* const found =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const Kind& kind) { return kind.type == wanted; });
  return found == kKinds.end() ? nullptr : found;
}

}  // namespace

PlanFile read_accelerate_config(const Document& document) {
  Problems problems;
  MapReader root(document.root, document.source, "", problems);
  PlanFile file;
  const bool is_deepspeed = root.has("deepspeed_config") && !root.has("fsdp_config");
  const std::string type = root.string("distributed_type").value_or(is_deepspeed ? "DEEPSPEED" : "FSDP");
  const Kind* kind = find_kind(type);
  if (kind == nullptr) {
    std::vector<std::string> names;
    names.reserve(std::size(kKinds));
    for (const Kind& known : kKinds) names.emplace_back(known.type);
    root.problem("distributed_type", fmt::format("found {}, which is not modelled, expected one of {}",
                                                 zeroplan::quoted(type), fmt::join(names, ", ")));
    problems.throw_if_any();
  }
  file.format = kind->format;
  read_size(root, "num_processes", "gpus", &PlanOptions::gpus, file.options);
  read_size(root, "num_machines", "nodes", &PlanOptions::nodes, file.options);
  read_size(root, "gradient_accumulation_steps", "grad_accum", &PlanOptions::grad_accum, file.options);
  read_precision(root, file);
  kind->read(root, file);
  read_parallelism(root, file);
  for (const std::string_view section : {"fsdp_config", "deepspeed_config"}) {
    if (!root.has(section) || section == kind->section) continue;
    file.options.notes.push_back(
        note_at(root, section, fmt::format("passed over with distributed_type {}", kind->type)));
  }
  settle(root, file);
  file.missing = {"model", "hw", "micro_batch", "seq"};
  problems.throw_if_any();
  return file;
}

}  // namespace zeroplan::describe
