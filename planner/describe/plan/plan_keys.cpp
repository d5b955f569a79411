#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <stdexcept>
#include <utility>
#include <variant>

#include "planner/describe/plan/plan.hpp"
#include "planner/describe/text/not_modelled.hpp"
#include "planner/describe/text/quantity.hpp"

// One table says what a plan's keys are; setting, merging and listing all read it.
namespace zeroplan::describe {
namespace {

struct IntegerField {
  std::optional<std::int64_t> PlanOptions::*member;
  std::int64_t minimum;
  std::int64_t maximum;
};

struct BytesField {
  std::optional<Bytes> PlanOptions::*member;
  Bytes minimum;
};

struct BooleanField {
  std::optional<bool> PlanOptions::*member;
};

// The name of an optimizer or engine.
struct NameField {
  std::optional<std::string> PlanOptions::*member;
  void (*check)(const std::string& name);
};

template <class Enumeration>
struct ChoiceField {
  std::optional<Enumeration> PlanOptions::*member;
  std::vector<Enumeration> values;
  std::vector<std::pair<std::string, Enumeration>> aliases;
  std::optional<Vocabulary> vocabulary{};
};

using Field = std::variant<IntegerField, BytesField, BooleanField, NameField, ChoiceField<Precision>,
                           ChoiceField<Recompute>, ChoiceField<AttentionKernel>, ChoiceField<Offload>>;

struct Row {
  PlanKey key;
  Field field;
};

constexpr std::int64_t kMaxDegree = 1'000'000;
constexpr std::int64_t kMaxGlobalBatch = 1'000'000'000;
constexpr std::int64_t kMaxPlanSequence = 100'000'000;
constexpr std::int64_t kMaxInterval = 100'000;
constexpr Bytes kMinBucket = kKiB;
constexpr Bytes kMaxPlanBytes = Bytes{1} << 50;

void check_optimizer(const std::string& name) { find_optimizer(name); }
void check_engine(const std::string& name) { find_engine(name); }

std::vector<Row> make_rows() {
  using O = PlanOptions;
  using P = Precision;
  using A = AttentionKernel;
  return {
      {{"gpus", "N", "devices in all (default: dp x tp, or the whole node or cluster)"},
       IntegerField{&O::gpus, 1, kMaxDegree}},
      {{"nodes", "N", "nodes of the cluster"}, IntegerField{&O::nodes, 1, kMaxDegree}},
      {{"dp", "N", "data-parallel degree (default: gpus / tp)"}, IntegerField{&O::dp, 1, kMaxDegree}},
      {{"tp", "N", "tensor-parallel degree, also mp (default 1)"}, IntegerField{&O::tp, 1, kMaxDegree}},
      {{"zero", "0..3", "ZeRO stage: 0 plain data parallel, 1 P_os, 2 P_os+g, 3 P_os+g+p"},
       IntegerField{&O::zero, 0, 3}},
      {{"shard", "N",
        "hybrid sharding (HSDP, MiCS): data-parallel ranks that ZeRO divides over (default: all)"},
       IntegerField{&O::shard, 1, kMaxDegree}},
      {{"secondary_shard", "N",
        "hpZ of ZeRO++: ranks that hold a second copy of the parameters for backward"},
       IntegerField{&O::secondary_shard, 1, kMaxDegree}},
      {{"micro_batch", "N", "sequences per model replica and forward-backward pass (default 1)"},
       IntegerField{&O::micro_batch, 1, kMaxDegree}},
      {{"grad_accum", "N", "micro-batches per optimizer step (default 1)"},
       IntegerField{&O::grad_accum, 1, kMaxDegree}},
      {{"global_batch", "N", "sequences per step: micro_batch x grad_accum x dp"},
       IntegerField{&O::global_batch, 1, kMaxGlobalBatch}},
      {{"seq", "N", "tokens per sequence (default: the model's, at most 4096)"},
       IntegerField{&O::seq, 1, kMaxPlanSequence}},
      {{"dtype", "fp32|fp16|bf16", "type the model computes in; 16 bit keeps fp32 master weights"},
       ChoiceField<P>{&O::dtype,
                      {P::fp32, P::fp16, P::bf16},
                      {{"float32", P::fp32}, {"float16", P::fp16}, {"bfloat16", P::bf16}},
                      Vocabulary::dtype}},
      {{"optimizer", "NAME", fmt::format("{} (default adam)", fmt::join(optimizer_names(), ", "))},
       NameField{&O::optimizer, check_optimizer}},
      {{"recompute", "none|selective|full", "what backward computes again (default none)"},
       ChoiceField<Recompute>{&O::recompute, {Recompute::none, Recompute::selective, Recompute::full}, {}}},
      {{"checkpoint_interval", "N", "layers per checkpoint under full recomputation (default 1)"},
       IntegerField{&O::checkpoint_interval, 1, kMaxInterval}},
      {{"attention", "flash|materialized|materialized_fp32", "how scores are kept, if at all"},
       ChoiceField<A>{&O::attention,
                      {A::flash, A::materialized, A::materialized_fp32},
                      {{"materialised", A::materialized}, {"materialised_fp32", A::materialized_fp32}},
                      Vocabulary::attention}},
      {{"dropout", "on|off", "dropout and its masks (default off)"}, BooleanField{&O::dropout}},
      {{"partition_activations", "on|off", "P_a: checkpoints divided over the tensor-parallel ranks"},
       BooleanField{&O::partition_activations}},
      {{"offload_activations", "on|off", "P_a+cpu: the divided checkpoints go to host memory"},
       BooleanField{&O::offload_activations}},
      {{"offload", "none|optimizer|all", "states in host memory; all: parameters too"},
       ChoiceField<Offload>{
           &O::offload, {Offload::none, Offload::optimizer, Offload::all}, {}, Vocabulary::offload}},
      {{"constant_buffers", "on|off", "C_B: buffers of a constant size (default on)"},
       BooleanField{&O::constant_buffers}},
      {{"bucket", "SIZE", "size of C_B's buffer (default: the engine's)"},
       BytesField{&O::bucket, kMinBucket}},
      {{"contiguous_memory", "on|off",
        "M_D: memory laid out before the run (default: on for native, off where the engine's allocator "
        "fragments)"},
       BooleanField{&O::contiguous_memory}},
      {{"overlap", "on|off",
        "data-parallel traffic of forward and backward beside the kernels (default: the engine's)"},
       BooleanField{&O::overlap}},
      {{"engine", "NAME",
        fmt::format("{} (default deepspeed on GPUs, native on processors)", fmt::join(engine_names(), ", "))},
       NameField{&O::engine, check_engine}},
      {{"reserve", "SIZE", "memory to leave free on each device (default 0)"}, BytesField{&O::reserve, 0}},
      {{"host_memory", "SIZE", "memory of each node's processors (default: what the machine's file says)"},
       BytesField{&O::host_memory, kMiB}},
  };
}

const std::vector<Row>& rows() {
  static const std::vector<Row> table = make_rows();
  return table;
}

std::string canonical(std::string_view key) {
  std::string result;
  for (const char c : key) {
    result += c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (result == "mp") return "tp";
  if (result == "hpz") return "secondary_shard";
  if (result == "zero_stage") return "zero";
  return result;
}

const Row* find_row(std::string_view name) {
  const auto found =
      std::find_if(rows().begin(), rows().end(), [&](const Row& row) { return row.key.name == name; });
  return found == rows().end() ? nullptr : &*found;
}

// The setters throw std::invalid_argument with what was found and expected.
void set_field(PlanOptions& options, const IntegerField& field, const std::string& text) {
  options.*field.member = parse_integer(text, field.minimum, field.maximum);
}

void set_field(PlanOptions& options, const BytesField& field, const std::string& text) {
  const Bytes bytes = parse_bytes(text);
  if (bytes < field.minimum || bytes > kMaxPlanBytes) {
    throw std::invalid_argument(fmt::format("found {}, expected a size from {} B to {} B", quoted(text),
                                            field.minimum, kMaxPlanBytes));
  }
  options.*field.member = bytes;
}

void set_field(PlanOptions& options, const BooleanField& field, const std::string& text) {
  options.*field.member = parse_boolean(text);
}

void set_field(PlanOptions& options, const NameField& field, const std::string& text) {
  try {
    field.check(text);
  } catch (const ConfigurationError& error) {
    throw std::invalid_argument(error.problems().front().message);
  }
  options.*field.member = text;
}

template <class Enumeration>
void set_field(PlanOptions& options, const ChoiceField<Enumeration>& field, const std::string& text) {
  std::vector<std::string> names;
  for (const Enumeration value : field.values) names.emplace_back(name_of(value));
  std::vector<std::string> candidates = names;
  for (const auto& [alias, value] : field.aliases) candidates.push_back(alias);
  const std::string wanted = canonical(text);
  for (const Enumeration value : field.values) {
    if (name_of(value) == wanted) return static_cast<void>(options.*field.member = value);
  }
  for (const auto& [alias, value] : field.aliases) {
    if (alias == wanted) return static_cast<void>(options.*field.member = value);
  }
  if (field.vocabulary) {
    if (const std::string known = not_modelled(*field.vocabulary, text); !known.empty())
      throw std::invalid_argument(fmt::format("found {}: {}", quoted(text), known));
  }
  std::string message = fmt::format("found {}, expected one of {}", quoted(text), fmt::join(names, ", "));
  if (const std::string nearest = nearest_name(text, candidates); !nearest.empty()) {
    message += "; nearest: " + nearest;
  }
  throw std::invalid_argument(message);
}

std::string unknown_key(std::string_view key) {
  if (std::string known = not_modelled(Vocabulary::plan_key, key); !known.empty()) return known;
  std::vector<std::string> names = {"mp", "zero_stage"};
  for (const Row& row : rows()) names.push_back(row.key.name);
  const std::string nearest = nearest_name(key, names);
  if (!nearest.empty()) return "unknown key; nearest: " + nearest;
  names.erase(names.begin(), names.begin() + 2);
  return fmt::format("unknown key, expected one of {}", fmt::join(names, ", "));
}

}  // namespace

const std::vector<PlanKey>& plan_keys() {
  static const std::vector<PlanKey> keys = [] {
    std::vector<PlanKey> result;
    for (const Row& row : rows()) result.push_back(row.key);
    return result;
  }();
  return keys;
}

void set_plan_option(PlanOptions& options, std::string_view key, const Value& value,
                     const std::string& source, Problems& problems) {
  const std::string name = canonical(key);
  // An option of the command line is its own key: "--tp: found ...", not "--tp: tp: found ...".
  const bool names_itself = source.starts_with("--") && canonical(source.substr(2)) == name;
  PlanOrigin origin{source, value.line, names_itself ? "" : std::string(key)};
  const auto refuse = [&](std::string message) {
    problems.add({origin.source, origin.line, origin.key, std::move(message)});
  };

  const Row* row = find_row(name);
  if (row == nullptr) return refuse(unknown_key(key));
  if (value.kind == Value::Kind::null) return;
  if (value.kind != Value::Kind::scalar) {
    return refuse(fmt::format("found a {}, expected {}", value.kind == Value::Kind::list ? "list" : "map",
                              row->key.placeholder));
  }
  try {
    std::visit([&](const auto& field) { set_field(options, field, value.text); }, row->field);
  } catch (const std::invalid_argument& error) {
    return refuse(error.what());
  }
  options.origins.insert_or_assign(name, std::move(origin));
}

PlanOptions merge(const PlanOptions& base, const PlanOptions& over) {
  PlanOptions result = base;
  for (const Row& row : rows()) {
    std::visit(
        [&](const auto& field) {
          if (over.*field.member) result.*field.member = over.*field.member;
        },
        row.field);
  }
  if (over.bucket || over.bucket_elements || over.bucket_from_hidden) {
    result.bucket = over.bucket;
    result.bucket_elements = over.bucket_elements;
    result.bucket_from_hidden = over.bucket_from_hidden;
  }
  if (over.partition_activations) result.partition_where_possible = over.partition_where_possible;
  result.notes.insert(result.notes.end(), over.notes.begin(), over.notes.end());
  for (const auto& [key, origin] : over.origins) result.origins.insert_or_assign(key, origin);
  return result;
}

}  // namespace zeroplan::describe
