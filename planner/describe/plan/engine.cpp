#include "planner/describe/plan/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <span>
#include <stdexcept>
#include <utility>

#include "planner/describe/text/embedded.hpp"
#include "planner/describe/text/named_description.hpp"
#include "planner/describe/text/quantity.hpp"

namespace zeroplan::describe {
namespace {

constexpr std::int64_t kMaxMultiple = 1 << 20;
constexpr std::int64_t kMaxLayers = 64;
constexpr Bytes kMaxBucket = Bytes{1} << 40;

std::string required_text(MapReader& map, std::string_view key, std::string_view meaning) {
  if (!map.has(key)) map.missing(key, meaning);
  return map.string(key).value_or("");
}

// A figure is `key: {value, source, note}`; the engine keeps its default where the key is absent.
template <class Read>
void read_figure(MapReader& map, std::string_view key, const Read& read) {
  const Value* value = map.map(key);
  if (value == nullptr) return;
  MapReader figure(*value, map.source(), map.dotted(key), map.problems());
  if (!figure.has("value")) figure.missing("value", "the figure");
  read(figure);
  const std::string source = required_text(figure, "source", "where the figure comes from");
  if (source.empty() && figure.has("source")) figure.problem("source", "found empty text, expected a source");
  figure.ignore("note");
  figure.finish();
}

void read_flag(MapReader& map, std::string_view key, bool& field) {
  read_figure(map, key, [&](MapReader& figure) { field = figure.boolean("value").value_or(field); });
}

void read_integer(MapReader& map, std::string_view key, std::int64_t minimum, std::int64_t maximum,
                  std::int64_t& field) {
  read_figure(map, key,
              [&](MapReader& figure) { field = figure.integer("value", minimum, maximum).value_or(field); });
}

void read_real(MapReader& map, std::string_view key, double minimum, double maximum, double& field) {
  read_figure(map, key,
              [&](MapReader& figure) { field = figure.real("value", minimum, maximum).value_or(field); });
}

// ZeRO stages, ascending.
void read_stages(MapReader& map, std::string_view key, std::vector<int>& stages) {
  constexpr std::int64_t kLastStage = 3;
  read_figure(map, key, [&](MapReader& figure) {
    const Value* list = figure.list("value");
    if (list == nullptr) return;
    std::vector<int> read;
    for (const Value& item : list->items) {
      try {
        read.push_back(static_cast<int>(parse_integer(item.text, 0, kLastStage)));
      } catch (const std::invalid_argument& error) {
        return figure.problem("value", error.what());
      }
    }
    if ((read.empty() && key == "stages") ||
        std::adjacent_find(read.begin(), read.end(), std::greater_equal<>()) != read.end()) {
      return figure.problem("value", "expected ZeRO stages in ascending order, at least one");
    }
    stages = std::move(read);
  });
}

Engine read_engine(const Document& document, int depth);

// The engine that this one is like, if any: what it does not say itself is said there. Whether it is held against runs is
// its own.
Engine base_of(MapReader& map, int depth) {
  constexpr int kDeepest = 8;
  Engine base;
  if (!map.has("like")) return base;
  const std::string name = map.string("like").value_or("");
  const std::span<const EmbeddedFile> engines = embedded_engines();
  const auto found = std::find_if(engines.begin(), engines.end(),
                                  [&](const EmbeddedFile& file) { return file.name == name; });
  if (found == engines.end()) {
    const std::string nearest = nearest_name(name, engine_names());
    map.problem("like", fmt::format("found {}, expected the name of an engine{}{}", quoted(name),
                                    nearest.empty() ? "" : "; nearest: ", nearest));
  } else if (depth == kDeepest) {
    map.problem("like", "engines are like each other in a circle");
  } else {
    base = read_engine(document_of(*found), depth + 1);
    base.held_against_gpu_runs = false;
  }
  return base;
}

Engine read_engine(const Document& document, int depth) {
  Problems problems;
  MapReader map(document.root, document.source, "", problems);
  check_schema(map, "zeroplan.engine/1");
  Engine engine = base_of(map, depth);
  engine.name = required_text(map, "name", "what a user types");
  engine.title = required_text(map, "title", "one line of description");
  engine.source = required_text(map, "source", "where the figures come from");
  map.ignore("aliases");
  read_flag(map, "arithmetic_only", engine.arithmetic_only);
  read_flag(map, "fp32_gradients_with_fp16", engine.fp32_gradients_with_fp16);
  read_flag(map, "fp32_gradients_with_bf16", engine.fp32_gradients_with_bf16);
  read_flag(map, "fp32_parameters", engine.fp32_parameters);
  read_flag(map, "fp32_gradient_partition", engine.fp32_gradient_partition);
  read_flag(map, "fp32_gradient_at_stage_0", engine.fp32_gradient_at_stage_0);
  read_flag(map, "fp32_gradient_replaces_stage_3", engine.fp32_gradient_replaces_stage_3);
  read_flag(map, "whole_gradients_at_stage_2", engine.whole_gradients_at_stage_2);
  read_integer(map, "prefetch_layers", 0, kMaxLayers, engine.prefetch_layers);
  read_integer(map, "vocabulary_multiple", 1, kMaxMultiple, engine.vocabulary_multiple);
  read_integer(map, "partition_multiple", 1, kMaxMultiple, engine.partition_multiple);
  read_integer(map, "alignment_bytes", 1, kMaxMultiple, engine.alignment_bytes);
  read_integer(map, "bucket_bytes", 0, kMaxBucket, engine.bucket_bytes);
  read_integer(map, "gradient_buckets", 0, 8, engine.gradient_buckets);
  read_integer(map, "overlapped_gradient_buckets", 0, 8, engine.overlapped_gradient_buckets);
  read_flag(map, "step_copies_whole_partition", engine.step_copies_whole_partition);
  read_integer(map, "fp32_logits_copies", 0, 4, engine.fp32_logits_copies);
  read_flag(map, "backward_in_place", engine.backward_in_place);
  read_flag(map, "recompute_stops_early", engine.recompute_stops_early);
  read_flag(map, "tensor_sum_beside_weight_gradient", engine.tensor_sum_beside_weight_gradient);
  read_flag(map, "tied_gradient_apart", engine.tied_gradient_apart);
  read_flag(map, "overlaps_gradients", engine.overlaps_gradients);
  read_flag(map, "overlaps_stage_3", engine.overlaps_stage_3);
  read_flag(map, "overlaps_checkpoint_copies", engine.overlaps_checkpoint_copies);
  read_real(map, "allocator_slack", 0, 1, engine.allocator_slack);
  read_flag(map, "allocates_from_driver", engine.allocates_from_driver);
  read_real(map, "matmul_fraction", 0.01, 1.5, engine.matmul_fraction);
  read_real(map, "attention_fraction", 0.01, 2, engine.attention_fraction);
  read_real(map, "kernel_gap_us", 0, 1000, engine.kernel_gap_us);
  read_real(map, "host_issue_us", 0, 1000, engine.host_issue_us);
  read_real(map, "elementwise_factor", 0.1, 20, engine.elementwise_factor);
  read_real(map, "traffic_slowdown", 0, 1, engine.traffic_slowdown);
  read_integer(map, "fused_softmax_batches", 0, kMaxMultiple, engine.fused_softmax_batches);
  read_real(map, "loss_bytes_per_logit", 1, 1000, engine.loss_bytes_per_logit);
  read_real(map, "host_factor", 1, 10, engine.host_factor);
  read_integer(map, "host_load_bytes_per_parameter", 0, 16, engine.host_load_bytes_per_parameter);
  read_flag(map, "partitioned_loading", engine.partitioned_loading);
  read_stages(map, "stages", engine.stages);
  read_stages(map, "hybrid_stages", engine.hybrid_stages);
  read_flag(map, "has_secondary_shard", engine.has_secondary_shard);
  read_flag(map, "sums_replicas_each_micro_batch", engine.sums_replicas_each_micro_batch);
  read_flag(map, "held_against_gpu_runs", engine.held_against_gpu_runs);
  map.finish();
  problems.throw_if_any();
  return engine;
}

}  // namespace

Engine read_engine_yaml(const Document& document) { return read_engine(document, 0); }

Described<Engine> find_engine(const std::string& name) {
  const EmbeddedFile& file = find_named(embedded_engines(), name, "--engine", Vocabulary::engine);
  return Described<Engine>::lasting(remembered<Engine>(file, read_engine_yaml));
}

std::vector<std::string> engine_names() { return names_of(embedded_engines()); }

}  // namespace zeroplan::describe
