#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "planner/describe/plan/assumed_links.hpp"
#include "planner/describe/plan/plan.hpp"
#include "planner/describe/plan/resolve_degrees.hpp"
#include "planner/describe/text/nearest_value.hpp"

namespace zeroplan::describe {
namespace {

constexpr std::int64_t kDefaultSequence = 1024;
constexpr std::int64_t kLongestDefaultSequence = 4096;
constexpr double kWorthTelling = 0.1;  // of a device's memory

void refuse(Resolution& resolution, std::string_view key, std::string message) {
  resolution.problems.add({option_name(key), 0, "", std::move(message)});
}

// `a` x `b` x ... must equal the global batch; `missing` = global batch / `product` where one factor is open.
std::int64_t divide_global_batch(Resolution& resolution, std::string_view product_name,
                                 std::int64_t product) {
  const std::int64_t global = *resolution.options.global_batch;
  if (global % product == 0) return global / product;
  refuse(resolution, "global_batch",
         fmt::format("found \"{}\", expected a multiple of {} = {} ({} % {} = {}); nearest: {}", global,
                     product_name, product, global, product, global % product,
                     nearest_multiples(global, product)));
  return 1;
}

void resolve_batch(Resolution& resolution) {
  const PlanOptions& options = resolution.options;
  Plan& plan = resolution.plan;
  const std::int64_t dp = plan.data_parallel;
  plan.micro_batch = options.micro_batch.value_or(1);
  plan.gradient_accumulation = options.grad_accum.value_or(1);
  if (options.global_batch && options.micro_batch && options.grad_accum) {
    const std::int64_t product = plan.global_batch();
    if (product != *options.global_batch) {
      refuse(resolution, "global_batch",
             fmt::format("found \"{}\", expected micro_batch x grad_accum x dp = {} x {} x {} = {}",
                         *options.global_batch, plan.micro_batch, plan.gradient_accumulation, dp, product));
    }
    return;
  }
  if (options.global_batch && options.grad_accum) {
    plan.micro_batch = divide_global_batch(
        resolution, fmt::format("grad_accum x dp = {} x {}", plan.gradient_accumulation, dp),
        plan.gradient_accumulation * dp);
    resolution.assume("micro_batch", plan.micro_batch, "global_batch / (grad_accum x dp)");
    return;
  }
  if (!options.micro_batch) resolution.assume("micro_batch", plan.micro_batch, "one sequence at a time");
  if (options.global_batch) {
    plan.gradient_accumulation = divide_global_batch(
        resolution, fmt::format("micro_batch x dp = {} x {}", plan.micro_batch, dp), plan.micro_batch * dp);
    resolution.assume("grad_accum", plan.gradient_accumulation, "global_batch / (micro_batch x dp)");
  } else {
    if (!options.grad_accum) resolution.assume("grad_accum", plan.gradient_accumulation, "no accumulation");
    resolution.assume("global_batch", plan.global_batch(), "micro_batch x grad_accum x dp");
  }
}

void resolve_sequence(Resolution& resolution, const Model& model) {
  Plan& plan = resolution.plan;
  if (resolution.options.seq) {
    plan.sequence = *resolution.options.seq;
    return;
  }
  if (model.max_sequence > 0) {
    plan.sequence = std::min(model.max_sequence, kLongestDefaultSequence);
    resolution.assume("seq", plan.sequence,
                      model.max_sequence > plan.sequence
                          ? fmt::format("the model takes up to {}", model.max_sequence)
                          : "the model's length");
  } else {
    plan.sequence = kDefaultSequence;
    resolution.assume("seq", plan.sequence, "the model does not say; the ZeRO paper's");
  }
}

void resolve_precision(Resolution& resolution, const Device* device) {
  Plan& plan = resolution.plan;
  const bool has_fp16 = device != nullptr && device->peak_fp16_tflops.has_value();
  const bool has_bf16 = device != nullptr && device->peak_bf16_tflops.has_value();
  if (!resolution.options.dtype) {
    if (device == nullptr) return;
    const bool sixteen = has_bf16 || has_fp16;
    plan.precision = has_bf16 ? Precision::bf16 : (has_fp16 ? Precision::fp16 : Precision::fp32);
    resolution.assume("dtype", name_of(plan.precision),
                      sixteen ? fmt::format("what {} has{}", device->name, has_bf16 ? "" : "; no bf16")
                              : fmt::format("no 16-bit rate is known of {}", device->name));
    return;
  }
  plan.precision = *resolution.options.dtype;
  if (plan.precision == Precision::bf16 && has_fp16 && !has_bf16) {
    resolution.assume(
        "dtype", name_of(plan.precision),
        fmt::format("{} has no bf16 matrix units: right in memory, slow in time; fp16 is faster",
                    device->name));
  }
}

template <class Field>
void take_or_assume(Resolution& resolution, std::string_view key, const std::optional<Field>& option,
                    Field& field, const std::string& reason) {
  if (option) {
    field = *option;
  } else {
    resolution.assume(key, name_of(field), reason);
  }
}

void resolve_switch(Resolution& resolution, std::string_view key, const std::optional<bool>& option,
                    bool& field, const std::string& reason) {
  if (option) {
    field = *option;
  } else {
    resolution.assume(key, field ? "on" : "off", reason);
  }
}

void resolve_zero(Resolution& resolution) {
  const PlanOptions& options = resolution.options;
  Plan& plan = resolution.plan;
  plan.offload = options.offload.value_or(Offload::none);
  if (options.zero) {
    plan.zero_stage = static_cast<int>(*options.zero);
  } else if (options.shard || options.shard_inside_node || options.secondary_shard) {
    plan.zero_stage = 3;
    resolution.assume("zero", 3, "what is sharded is everything");
  } else if (plan.offload == Offload::all) {
    plan.zero_stage = 3;
    resolution.assume("zero", 3, "parameters are offloaded as partitions");
  } else if (plan.offload == Offload::optimizer) {
    plan.zero_stage = 2;
    resolution.assume("zero", 2, "ZeRO-Offload builds on stage 2");
  } else {
    plan.zero_stage = 0;
    resolution.assume("zero", 0, "plain data parallel");
  }
  if (plan.zero_stage > 0 && plan.data_parallel == 1 && plan.offload == Offload::none) {
    resolution.assume("zero", plan.zero_stage, "nothing to partition over one data-parallel rank");
  }
}

void resolve_shards(Resolution& resolution, const Cluster& cluster) {
  const PlanOptions& options = resolution.options;
  Plan& plan = resolution.plan;
  plan.secondary_shard = options.secondary_shard.value_or(0);
  if (options.shard) {
    plan.shard = *options.shard == plan.data_parallel ? 0 : *options.shard;
  } else if (options.shard_inside_node && cluster.nodes > 1) {
    plan.shard = std::max<std::int64_t>(1, cluster.devices_per_node / plan.tensor_parallel);
    resolution.assume("shard", plan.shard, "hybrid sharding is over the devices of a node");
  }
}

void resolve_activations(Resolution& resolution, const Model& model) {
  const PlanOptions& options = resolution.options;
  Plan& plan = resolution.plan;
  plan.offload_activations = options.offload_activations.value_or(false);
  plan.partition_activations = options.partition_activations.value_or(plan.offload_activations);
  if (plan.partition_activations && !options.partition_activations) {
    resolution.assume("partition_activations", "on", "offload_activations moves what P_a divides");
  }
  plan.checkpoint_interval = options.checkpoint_interval.value_or(1);
  const bool needs_full =
      plan.partition_activations || plan.offload_activations || plan.checkpoint_interval > 1;
  if (plan.partition_activations && plan.tensor_parallel == 1 && options.partition_where_possible) {
    plan.partition_activations = false;
    resolution.notes.emplace_back(
        "partition_activations divides checkpoints over tensor-parallel ranks, and there is one: nothing is "
        "partitioned");
  }
  if (needs_full) plan.recompute = Recompute::full;
  take_or_assume(resolution, "recompute", options.recompute, plan.recompute,
                 needs_full ? "checkpoints are asked for" : "every activation is kept");
  if (!model.is_shape()) {
    resolution.assume("activation", "not counted", "only the number of parameters is known");
    return;
  }
  if (plan.recompute == Recompute::full && !options.checkpoint_interval) {
    resolution.assume("checkpoint_interval", 1, "one checkpoint per layer");
  }
  take_or_assume(resolution, "attention", options.attention, plan.attention, "no scores are kept");
  if (plan.recompute == Recompute::selective && plan.attention == AttentionKernel::flash) {
    resolution.assume("recompute", name_of(plan.recompute),
                      "the same as none here: flash attention keeps no scores to compute again");
  }
  resolve_switch(resolution, "dropout", options.dropout, plan.dropout, "no masks");
}

void resolve_names(Resolution& resolution, const Device* device) {
  const PlanOptions& options = resolution.options;
  const auto find = [&](const auto& finder, const std::string& name, auto& field) {
    try {
      field = finder(name);
    } catch (const ConfigurationError& error) {
      resolution.problems.add(error);
    }
  };
  find(find_optimizer, options.optimizer.value_or("adam"), resolution.plan.optimizer);
  // Processors run zeroplan's own executor. On a GPU the answer is for an engine that people have there and
  // that is held against published runs.
  const bool on_gpus = device != nullptr && !device->capacity.from_host_memory;
  const std::string engine = on_gpus ? "deepspeed" : "native";
  find(find_engine, options.engine.value_or(engine), resolution.plan.engine);
  if (!options.optimizer) resolution.assume("optimizer", "adam", "the usual choice");
  if (!options.engine) {
    resolution.assume("engine", engine,
                      on_gpus ? "in wide use on GPUs, and held against published runs"
                              : "zeroplan's own executor, which runs on processors");
  }
}

// Parameters of one tensor-parallel rank: the gradient is as large.
Elements local_parameters(const Model& model, const Plan& plan) {
  if (!model.is_shape()) return div_ceil(model.only_parameters, plan.tensor_parallel);
  Elements total = 0;
  for (const ParameterGroup& group : parameter_groups(model, plan.sequence)) {
    for (const ParameterTensor& tensor : group.tensors) {
      std::int64_t parts = plan.tensor_parallel;
      if (tensor.sharding == Sharding::replicated) parts = 1;
      if (tensor.sharding == Sharding::key_value)
        parts = std::min(parts, std::max<std::int64_t>(1, model.kv_heads));
      total += group.layers * div_ceil(tensor.elements(), parts);
    }
  }
  return total;
}

// As parse_bytes() takes it.
std::string bytes_text(Bytes bytes) {
  if (bytes > 0 && bytes % kMiB == 0) return fmt::format("{}MiB", bytes / kMiB);
  if (bytes > 0 && bytes % 1'000'000 == 0) return fmt::format("{}MB", bytes / 1'000'000);
  return fmt::format("{}B", bytes);
}

void resolve_bucket(Resolution& resolution, const Model& model) {
  const PlanOptions& options = resolution.options;
  Plan& plan = resolution.plan;
  plan.constant_buffers = options.constant_buffers.value_or(true);
  if (options.bucket && !plan.constant_buffers) {
    refuse(resolution, "bucket",
           fmt::format("found \"{}\" with constant_buffers off, expected it on: the bucket is C_B's buffer",
                       *options.bucket));
  }
  const Bytes element = gradient_bytes(plan.engine, plan.precision);
  std::string reason = fmt::format("default of {}", plan.engine->name);
  plan.bucket_bytes = plan.engine->bucket_bytes;
  if (options.bucket) {
    plan.bucket_bytes = *options.bucket;
  } else if (options.bucket_from_hidden) {
    if (model.hidden == 0) {
      refuse(
          resolution, "bucket",
          "found \"auto\", which is hidden x hidden elements, and the hidden size is not known; expected a "
          "number, or a model with its shape");
    }
    plan.bucket_bytes = model.hidden * model.hidden * element;
    reason = fmt::format("auto: hidden x hidden elements of {} bytes", element);
  } else if (options.bucket_elements) {
    plan.bucket_bytes = *options.bucket_elements * element;
    reason = fmt::format("{} elements of {} bytes", *options.bucket_elements, element);
  }
  const bool countable = model.architecture == Architecture::decoder && resolution.problems.empty();
  const Bytes gradient =
      countable ? local_parameters(model, plan) * element : std::numeric_limits<Bytes>::max();
  const bool capped = plan.bucket_bytes > gradient;
  if (capped) {
    reason = fmt::format("{} bytes, capped at the gradient's size", plan.bucket_bytes);
    plan.bucket_bytes = gradient;
  }
  if (plan.constant_buffers && (capped || !options.bucket)) {
    resolution.assume("bucket", bytes_text(plan.bucket_bytes), reason);
  }
}

// M_D is the executor's own; an engine on a caching allocator fragments unless the user says otherwise.
void resolve_contiguous_memory(Resolution& resolution) {
  Plan& plan = resolution.plan;
  const bool fragments = plan.engine->allocator_slack > 0;
  plan.contiguous_memory = !fragments;
  resolve_switch(resolution, "contiguous_memory", resolution.options.contiguous_memory,
                 plan.contiguous_memory,
                 fragments ? fmt::format("{} uses a caching allocator", plan.engine->name)
                           : "memory is laid out before the run");
}

// What the plan takes for granted and a trainer may do otherwise, with less memory.
void tell_what_is_kept(Resolution& resolution, const Model& model, const Device& device) {
  const Plan& plan = resolution.plan;
  if (plan.precision != Precision::fp32 && !plan.engine->fp32_parameters) {
    resolution.assume("master_weights", "fp32", "training without fp32 master weights is not modelled");
  }
  if (!model.is_shape()) return;
  const double logits = static_cast<double>(plan.micro_batch) * static_cast<double>(plan.sequence) *
                        static_cast<double>(model.output_rows()) / static_cast<double>(plan.tensor_parallel) *
                        sizeof(float);
  if (logits > kWorthTelling * static_cast<double>(device.capacity.usable_bytes())) {
    resolution.assume("loss", "holds its logits", "a fused loss that never holds them is not modelled");
  }
}

void resolve_overlap(Resolution& resolution) {
  Plan& plan = resolution.plan;
  const bool at_stage_3 = plan.zero_stage == 3;
  plan.overlap = at_stage_3 ? plan.engine->overlaps_stage_3 : plan.engine->overlaps_gradients;
  if (resolution.options.overlap) {
    plan.overlap = *resolution.options.overlap;
  } else if (!plan.overlap && plan.data_parallel > 1) {
    resolution.assume("overlap", "off", fmt::format("default of {}", plan.engine->name));
  }
}

void check_reserve(Resolution& resolution, const Device& device) {
  resolution.plan.reserve_bytes = resolution.options.reserve.value_or(0);
  const Bytes usable = device.capacity.usable_bytes();
  if (resolution.plan.reserve_bytes < usable) return;
  refuse(resolution, "reserve",
         fmt::format("found \"{}\", expected less than the {} bytes of {}", resolution.plan.reserve_bytes,
                     usable, device.name));
}

// A problem that names an option is moved to where the user wrote it.
std::vector<Problem> at_their_origin(const Problems& problems, const PlanOptions& options) {
  std::vector<Problem> result = problems.list();
  for (Problem& problem : result) {
    for (const auto& [key, origin] : options.origins) {
      if (problem.source != option_name(key)) continue;
      problem.source = origin.source;
      problem.line = origin.line;
      problem.key = origin.key;
      break;
    }
  }
  return result;
}

}  // namespace

ResolvedPlan resolve_plan(const PlanOptions& options, const Model& model, const std::string& hardware) {
  Resolution resolution(options);
  std::optional<Cluster> cluster = resolve_degrees(resolution, hardware);
  if (cluster && options.host_memory) {
    cluster->given_host_memory_bytes = Figure{.value = static_cast<double>(*options.host_memory),
                                              .source = "--host-memory",
                                              .note = {},
                                              .assumed = false};
  }
  // With degrees that are wrong, the batch would be called wrong too.
  if (resolution.problems.empty()) resolve_batch(resolution);
  resolve_sequence(resolution, model);
  resolve_precision(resolution, cluster ? &*cluster->device : nullptr);
  resolve_names(resolution, cluster ? &*cluster->device : nullptr);
  resolve_zero(resolution);
  resolve_shards(resolution, *cluster);
  resolve_activations(resolution, model);
  check_plan(resolution.plan, model, resolution.problems);
  resolve_bucket(resolution, model);
  resolve_contiguous_memory(resolution);
  resolve_overlap(resolution);
  if (cluster) check_reserve(resolution, cluster->device);
  if (cluster && model.is_shape()) {
    for (Assumption& assumption : assumed_links(resolution.plan, *cluster))
      resolution.assumptions.push_back(std::move(assumption));
  }
  if (cluster) tell_what_is_kept(resolution, model, cluster->device);
  if (!resolution.problems.empty()) throw ConfigurationError(at_their_origin(resolution.problems, options));
  return {std::move(resolution.plan), std::move(*cluster), std::move(resolution.assumptions),
          std::move(resolution.notes)};
}

}  // namespace zeroplan::describe
