#include "planner/describe/plan/deepspeed_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <stdexcept>
#include <utility>

#include "planner/describe/plan/deepspeed_keys.hpp"
#include "planner/describe/text/quantity.hpp"

namespace zeroplan::describe {
namespace {

constexpr std::string_view kAuto = "auto";
constexpr std::string_view kStage3 = "stage3_";
constexpr Elements kMaxElements = 1'000'000'000'000'000;

struct SizeKey {
  std::string_view name;  // without "stage3_"
  bool stage3 = false;    // also written with "stage3_"
  Elements minimum = 0;
  Elements DeepSpeedSizes::*member = nullptr;
};

constexpr std::array<SizeKey, 7> kSizeKeys = {{
    {"reduce_bucket_size", false, 1, &DeepSpeedSizes::reduce_bucket},
    {"allgather_bucket_size", false, 1, &DeepSpeedSizes::allgather_bucket},
    {"prefetch_bucket_size", true, 0, &DeepSpeedSizes::prefetch_bucket},
    {"param_persistence_threshold", true, 0, &DeepSpeedSizes::parameter_persistence_threshold},
    {"max_live_parameters", true, 0, &DeepSpeedSizes::max_live_parameters},
    {"max_reuse_distance", true, 0, &DeepSpeedSizes::max_reuse_distance},
    {"sub_group_size", false, 0, &DeepSpeedSizes::sub_group},
}};

struct Reading {
  DeepSpeedConfig& config;
  const std::string& source;
  Problems& problems;

  PlanOptions& options() { return config.file.options; }
  std::vector<std::string>& notes() { return options().notes; }
  void note(const MapReader& map, std::string_view key, std::string text) {
    notes().push_back(note_at(map, key, std::move(text)));
  }
  void origin(const MapReader& map, std::string_view key, std::string plan_key) {
    const Value* value = map.value() == nullptr ? nullptr : map.value()->find(key);
    if (value == nullptr) return;
    options().origins.insert_or_assign(std::move(plan_key), PlanOrigin{source, value->line, map.dotted(key)});
  }
};

// What is left of a section when its keys have been read.
void settle(Reading& reading, MapReader& map) {
  settle_keys(map, deepspeed_keys(map.path()), AskedKeys::follow_the_table, reading.notes());
}

// A section of which nothing goes into the plan.
void settle_section(Reading& reading, MapReader& root, std::string_view key) {
  const Value* section = root.map(key);
  if (section == nullptr) return;
  MapReader map(*section, reading.source, std::string(key), reading.problems);
  settle(reading, map);
}

bool is_auto(const Value* value) {
  return value != nullptr && value->kind == Value::Kind::scalar && value->text == kAuto;
}

// True or false; nothing where the key is absent or "auto". A boolean between quotes is taken, with a note.
std::optional<bool> lenient_boolean(Reading& reading, MapReader& map, std::string_view key) {
  const Value* value = map.any(key);
  if (is_auto(value)) return std::nullopt;
  const std::optional<bool> result = map.boolean(key);
  if (result && value->quoted) {
    reading.note(map, key,
                 fmt::format("{} is text, taken as the boolean {}", zeroplan::quoted(value->text), *result));
  }
  return result;
}

// A key of the plan that may be "auto", which leaves it open.
void read_count(Reading& reading, MapReader& map, std::string_view key, std::string_view plan_key,
                std::optional<std::int64_t> PlanOptions::*member, std::int64_t maximum) {
  const Value* value = map.any(key);
  if (value == nullptr || is_auto(value)) return;
  reading.options().*member = map.integer(key, 1, maximum);
  reading.options().origins.insert_or_assign(std::string(plan_key),
                                             PlanOrigin{reading.source, value->line, map.dotted(key)});
}

std::optional<bool> read_enabled(Reading& reading, MapReader& root, std::string_view key, bool& left_open) {
  const Value* section = root.map(key);
  if (section == nullptr) return std::nullopt;
  MapReader map(*section, reading.source, std::string(key), reading.problems);
  left_open = left_open || is_auto(section->find("enabled"));
  settle(reading, map);
  return lenient_boolean(reading, map, "enabled");
}

void read_precision(Reading& reading, MapReader& root) {
  bool left_open = false;
  const bool fp16 = read_enabled(reading, root, "fp16", left_open).value_or(false);
  bool bf16 = read_enabled(reading, root, "bf16", left_open).value_or(false);
  bf16 = read_enabled(reading, root, "bfloat16", left_open).value_or(false) || bf16;
  if (fp16 && bf16) root.problem("bf16", "found bf16 and fp16 both enabled, expected one of them");
  if (fp16) {
    reading.options().dtype = Precision::fp16;
  } else if (bf16) {
    reading.options().dtype = Precision::bf16;
  } else if (!left_open) {
    reading.options().dtype = Precision::fp32;
  }
}

void read_optimizer(Reading& reading, MapReader& root) {
  const Value* section = root.map("optimizer");
  if (section == nullptr) return;
  MapReader map(*section, reading.source, "optimizer", reading.problems);
  const Value* params = map.map("params");
  if (params != nullptr) {
    MapReader parameters(*params, reading.source, "optimizer.params", reading.problems);
    settle(reading, parameters);
  }
  settle(reading, map);
  const auto type = map.string("type");
  if (!type || *type == kAuto) return;
  std::string name = *type;
  const Value* momentum = params == nullptr ? nullptr : params->find("momentum");
  std::string lower;
  for (const char c : name) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (lower == "sgd" && momentum != nullptr && momentum->text != "0" && momentum->text != "0.0") {
    name = "sgd-momentum";
  }
  try {
    reading.options().optimizer = find_optimizer(name)->name;
  } catch (const ConfigurationError& error) {
    map.problem("type", error.problems().front().message);
  }
}

// The device of offload_optimizer or offload_param: whether it is the CPU.
bool read_offload_device(Reading& reading, MapReader& zero, std::string_view key) {
  const Value* section = zero.map(key);
  if (section == nullptr) return false;
  MapReader map(*section, reading.source, zero.dotted(key), reading.problems);
  const auto device = map.one_of("device", {"none", "cpu", "nvme"});
  if (device == 2) map.problem("device", "found \"nvme\", which is not modelled, expected none or cpu");
  settle(reading, map);
  return device == 1;
}

void read_offload(Reading& reading, MapReader& zero) {
  const bool old_optimizer = lenient_boolean(reading, zero, "cpu_offload").value_or(false);
  // DeepSpeed's own name, and one that many files have.
  const bool old_parameters = lenient_boolean(reading, zero, "cpu_offload_params").value_or(false) ||
                              lenient_boolean(reading, zero, "cpu_offload_param").value_or(false);
  const bool optimizer = read_offload_device(reading, zero, "offload_optimizer") || old_optimizer;
  bool parameters = read_offload_device(reading, zero, "offload_param") || old_parameters;
  if (parameters && reading.options().zero < 3) {
    // "Valid only with stage 3" (DeepSpeedZeroConfig.offload_param).
    reading.note(zero, zero.has("offload_param") ? "offload_param" : "cpu_offload_params",
                 "valid with stage 3 only, and passed over");
    parameters = false;
  }
  if (parameters && !optimizer) {
    zero.problem(zero.has("offload_param")        ? "offload_param"
                 : zero.has("cpu_offload_params") ? "cpu_offload_params"
                                                  : "cpu_offload_param",
                 "found parameters offloaded without the optimizer, which is not modelled, expected "
                 "offload_optimizer too");
  }
  reading.options().offload = parameters ? Offload::all : (optimizer ? Offload::optimizer : Offload::none);
  if (const Value* value = zero.any(parameters ? "offload_param" : "offload_optimizer")) {
    reading.options().origins.insert_or_assign(
        "offload", PlanOrigin{reading.source, value->line,
                              zero.dotted(parameters ? "offload_param" : "offload_optimizer")});
  }
}

void read_size(Reading& reading, MapReader& zero, const SizeKey& size) {
  const std::string prefixed = std::string(kStage3) + std::string(size.name);
  std::string key(size.name);
  const bool plain = zero.has(size.name);
  if (size.stage3 && zero.has(prefixed)) {
    if (plain) zero.problem(prefixed, fmt::format("found beside {}, expected one of them", size.name));
    key = prefixed;
  } else if (!plain) {
    return;
  }
  const Value* value = zero.any(key);
  if (is_auto(value)) {
    reading.config.automatic.push_back({zero.dotted(key), value->line, size.member});
  } else if (const auto elements = zero.integer(key, size.minimum, kMaxElements)) {
    reading.config.sizes.*size.member = *elements;
  }
  if (size.member == &DeepSpeedSizes::reduce_bucket) {
    reading.options().origins.insert_or_assign("bucket",
                                               PlanOrigin{reading.source, value->line, zero.dotted(key)});
  }
}

void note_what_is_left_out(Reading& reading, MapReader& zero) {
  if (reading.options().overlap.value_or(false)) {
    reading.note(zero, "overlap_comm", "keeps a second reduce bucket, which is not counted");
  }
  for (const std::string_view key :
       {"zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients"}) {
    if (lenient_boolean(reading, zero, key).value_or(false)) {
      reading.note(zero, key, "ZeRO++ is not modelled; planned without it");
    }
  }
}

// MiCS shards over so many ranks, hpZ keeps a second copy over so many; up to 1, DeepSpeed does neither.
void read_shards(Reading& reading, MapReader& zero) {
  constexpr std::int64_t kMostRanks = 1'000'000;
  const auto read = [&](const char* key, std::string plan_key,
                        std::optional<std::int64_t> PlanOptions::*member) {
    const std::optional<std::int64_t> ranks = zero.integer(key, -1, kMostRanks);
    if (!ranks || *ranks <= 1) return;
    reading.options().*member = ranks;
    reading.origin(zero, key, std::move(plan_key));
  };
  read("mics_shard_size", "shard", &PlanOptions::shard);
  read("zero_hpz_partition_size", "secondary_shard", &PlanOptions::secondary_shard);
}

void read_zero(Reading& reading, MapReader& root) {
  PlanOptions& options = reading.options();
  options.zero = 0;
  const Value* section = root.map("zero_optimization");
  if (section == nullptr) return;
  MapReader zero(*section, reading.source, "zero_optimization", reading.problems);
  options.zero = zero.integer("stage", 0, 3).value_or(0);
  if (const Value* stage = zero.any("stage")) {
    options.origins.insert_or_assign("zero", PlanOrigin{reading.source, stage->line, zero.dotted("stage")});
  }
  read_offload(reading, zero);
  for (const SizeKey& size : kSizeKeys) read_size(reading, zero, size);
  options.overlap = lenient_boolean(reading, zero, "overlap_comm");
  read_shards(reading, zero);
  note_what_is_left_out(reading, zero);
  settle(reading, zero);
}

void read_activations(Reading& reading, MapReader& root) {
  const Value* section = root.map("activation_checkpointing");
  if (section == nullptr) return;
  MapReader map(*section, reading.source, "activation_checkpointing", reading.problems);
  const bool partition = lenient_boolean(reading, map, "partition_activations").value_or(false);
  const bool offload = lenient_boolean(reading, map, "cpu_checkpointing").value_or(false);
  reading.options().partition_activations = partition;
  reading.options().partition_where_possible = true;
  reading.options().offload_activations = offload;
  reading.origin(map, "partition_activations", "partition_activations");
  reading.origin(map, "cpu_checkpointing", "offload_activations");
  if (partition || offload) {
    reading.options().recompute = Recompute::full;
    reading.note(map, partition ? "partition_activations" : "cpu_checkpointing",
                 "divides or moves checkpoints, so recompute is full");
  }
  settle(reading, map);
}

void read_tensor_parallel(Reading& reading, MapReader& root) {
  const Value* section = root.map("tensor_parallel");
  if (section == nullptr) return;
  MapReader map(*section, reading.source, "tensor_parallel", reading.problems);
  // 0 is DeepSpeed's default: no tensor parallelism.
  const Value* size = map.any("autotp_size");
  if (size != nullptr && size->text != "0") {
    read_count(reading, map, "autotp_size", "tp", &PlanOptions::tp, 1'000'000);
  }
  settle(reading, map);
}

void take_bucket(Reading& reading) {
  const auto& automatic = reading.config.automatic;
  reading.options().bucket_from_hidden =
      std::any_of(automatic.begin(), automatic.end(),
                  [](const AutomaticSize& size) { return size.member == &DeepSpeedSizes::reduce_bucket; });
  if (!reading.options().bucket_from_hidden) {
    reading.options().bucket_elements = reading.config.sizes.reduce_bucket;
  }
}

}  // namespace

DeepSpeedConfig read_deepspeed_config(const Document& document) {
  DeepSpeedConfig config;
  config.file.format = "DeepSpeed";
  Problems problems;
  Reading reading{config, document.source, problems};
  MapReader root(document.root, document.source, "", problems);
  root.allow_unknown();

  config.file.options.engine = "deepspeed";
  read_count(reading, root, "train_batch_size", "global_batch", &PlanOptions::global_batch, 1'000'000'000);
  read_count(reading, root, "train_micro_batch_size_per_gpu", "micro_batch", &PlanOptions::micro_batch,
             1'000'000);
  read_count(reading, root, "gradient_accumulation_steps", "grad_accum", &PlanOptions::grad_accum, 1'000'000);
  read_precision(reading, root);
  read_optimizer(reading, root);
  read_zero(reading, root);
  read_activations(reading, root);
  read_tensor_parallel(reading, root);
  for (const std::string_view section : {"torch_autocast", "data_types", "pipeline"}) {
    settle_section(reading, root, section);
  }
  settle(reading, root);
  take_bucket(reading);

  config.file.missing = {"model", "hw", "seq"};
  if (!config.file.options.micro_batch && !config.file.options.global_batch) {
    config.file.missing.emplace_back("micro_batch");
  }
  problems.throw_if_any();
  return config;
}

DeepSpeedSizes resolve_automatic_sizes(const DeepSpeedConfig& config, std::optional<std::int64_t> hidden,
                                       const std::string& source) {
  DeepSpeedSizes sizes = config.sizes;
  Problems problems;
  for (const AutomaticSize& size : config.automatic) {
    const bool reduce = size.member == &DeepSpeedSizes::reduce_bucket;
    const bool prefetch = size.member == &DeepSpeedSizes::prefetch_bucket;
    const bool threshold = size.member == &DeepSpeedSizes::parameter_persistence_threshold;
    if (!reduce && !prefetch && !threshold) continue;
    if (!hidden) {
      problems.add({source, size.line, size.key,
                    "found \"auto\", which follows from the model's hidden size, and that is not known; "
                    "expected a number, or a model with a hidden size"});
      continue;
    }
    const Elements square = *hidden * *hidden;
    if (reduce) sizes.reduce_bucket = square;
    // The integration multiplies in this order, in double precision.
    const auto width = static_cast<double>(*hidden);
    if (prefetch) sizes.prefetch_bucket = static_cast<Elements>(0.9 * width * width);
    if (threshold) sizes.parameter_persistence_threshold = 10 * *hidden;
  }
  problems.throw_if_any();
  return sizes;
}

}  // namespace zeroplan::describe
