#include "planner/describe/fsdp_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace zeroplan::describe {
namespace {

struct Strategy {
  std::string_view name;
  int zero = 0;
  bool hybrid = false;
};

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

std::optional<Strategy> read_strategy(MapReader& map, std::string_view key) {
  const auto text = map.string(key);
  if (!text) return std::nullopt;
  for (std::size_t i = 0; i < kStrategies.size(); ++i) {
    if (upper(*text) == kStrategies[i].name || *text == std::to_string(i + 1)) return kStrategies[i];
  }
  map.one_of(key, strategy_names());
  return std::nullopt;
}

// Version 1 has a strategy; in version 2 fsdp_reshard_after_forward is a boolean that takes its place
// (default true).
Strategy read_sharding(MapReader& map) {
  const bool second = map.integer("fsdp_version", 1, 2).value_or(1) == 2;
  const auto strategy = read_strategy(map, "fsdp_sharding_strategy");
  if (second)
    return map.boolean("fsdp_reshard_after_forward").value_or(true) ? kStrategies[0] : kStrategies[1];
  if (strategy) return *strategy;
  // Newer files write the strategy of version 1 here.
  return read_strategy(map, "fsdp_reshard_after_forward").value_or(kStrategies[0]);
}

void read_precision(MapReader& root, PlanFile& file) {
  const Value* value = root.any("mixed_precision");
  if (value == nullptr || value->kind == Value::Kind::null) return;
  // Writers of YAML turn an unquoted no into false.
  if (value->kind == Value::Kind::scalar && upper(value->text) == "FALSE") {
    file.notes.push_back(fmt::format("mixed_precision: {} is taken as no", zeroplan::quoted(value->text)));
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
  options.*member = root.integer(key, 1, 1'000'000);
  if (value != nullptr) {
    options.origins.insert_or_assign(std::string(plan_key),
                                     PlanOrigin{root.source(), value->line, root.dotted(key)});
  }
}

// Stage 3 inside a node and replicas across nodes: each device holds what a plan for one node holds.
void plan_one_replica(MapReader& root, PlanFile& file) {
  PlanOptions& options = file.options;
  const std::int64_t nodes = options.nodes.value_or(1);
  if (nodes == 1) return;
  if (options.gpus && *options.gpus % nodes != 0) {
    root.problem("num_processes",
                 fmt::format("found \"{}\", expected a multiple of num_machines {}", *options.gpus, nodes));
    return;
  }
  if (options.gpus) options.gpus = *options.gpus / nodes;
  options.nodes = 1;
  file.notes.push_back(fmt::format(
      "hybrid sharding: planned as one of {} replicas, sharded inside one node; the all-reduce of "
      "the sharded gradients between nodes is not counted",
      nodes));
}

void read_sharded(MapReader& root, PlanFile& file) {
  const Value* section = root.map("fsdp_config");
  if (section == nullptr) {
    root.missing("fsdp_config", "a map with fsdp_sharding_strategy or fsdp_version");
    return;
  }
  MapReader map(*section, root.source(), "fsdp_config", root.problems());
  const Strategy strategy = read_sharding(map);
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
  if (strategy.hybrid) plan_one_replica(root, file);
}

}  // namespace

PlanFile read_fsdp_config(const Document& document) {
  Problems problems;
  MapReader root(document.root, document.source, "", problems);
  root.allow_unknown();
  PlanFile file;
  file.format = "accelerate FSDP";
  file.options.engine = "fsdp2";
  if (const auto type = root.string("distributed_type"); type && upper(*type) != "FSDP") {
    root.problem("distributed_type",
                 fmt::format("found {}, expected FSDP{}", zeroplan::quoted(*type),
                             upper(*type) == "DEEPSPEED" ? "; give the DeepSpeed JSON file itself" : ""));
    problems.throw_if_any();
  }
  read_size(root, "num_processes", "gpus", &PlanOptions::gpus, file.options);
  read_size(root, "num_machines", "nodes", &PlanOptions::nodes, file.options);
  read_precision(root, file);
  read_sharded(root, file);
  file.missing = {"model", "hw", "micro_batch", "seq"};
  problems.throw_if_any();
  return file;
}

}  // namespace zeroplan::describe
