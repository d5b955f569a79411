#include <array>

#include "planner/accuracy/mentions.hpp"
#include "planner/accuracy/modelled_run.hpp"

namespace zeroplan::accuracy {
namespace {

using describe::AttentionKernel;
using describe::Offload;
using describe::PlanOptions;
using describe::Precision;
using describe::Recompute;

constexpr std::array<std::string_view, 3> kNarrowTypes{"fp8", "float8", "fp4"};

void take_degrees(const Run& run, PlanOptions& options) {
  if (run.pipeline_parallel.value_or(1) > 1) throw NotModelled{"pipeline parallelism"};
  if (run.context_parallel.value_or(1) > 1) throw NotModelled{"context parallelism"};
  if (run.expert_parallel.value_or(1) > 1) throw NotModelled{"expert parallelism"};
  if (!run.tensor_parallel || !run.pipeline_parallel || !(run.gpus || run.data_parallel)) {
    throw NotModelled{"parallel degrees or GPU count not stated"};
  }
  options.tp = run.tensor_parallel;
  options.gpus = run.gpus.value_or(run.data_parallel.value_or(1) * *run.tensor_parallel);
  if (*options.gpus % *options.tp != 0) throw NotModelled{"GPUs are not a multiple of the degrees"};
  options.dp = *options.gpus / *options.tp;
  if (run.data_parallel && *run.data_parallel != *options.dp) {
    throw NotModelled{"GPUs are not dp x tp"};
  }
}

void take_sharding(const Run& run, PlanOptions& options) {
  if (!run.zero_stage) throw NotModelled{"ZeRO stage not stated"};
  if (run.shard_ranks.value_or(*options.dp) < *options.dp) {
    throw NotModelled{"states sharded over a part of the ranks"};
  }
  options.zero = run.zero_stage;
}

void take_batch(const Run& run, PlanOptions& options) {
  if (!run.sequence) throw NotModelled{"sequence length not stated"};
  if (!run.micro_batch) throw NotModelled{"batch not stated"};
  options.seq = run.sequence;
  options.micro_batch = run.micro_batch;
  options.grad_accum = run.gradient_accumulation;
  if (options.grad_accum) return;
  if (!run.global_batch) {
    if (run.step_seconds) throw NotModelled{"batch not stated"};
    options.grad_accum = 1;
    return;
  }
  const std::int64_t pass = *options.micro_batch * *options.dp;
  if (*run.global_batch % pass != 0) throw NotModelled{"the global batch is no multiple of a pass"};
  options.grad_accum = *run.global_batch / pass;
}

Precision precision_of(const Run& run) {
  for (const std::string_view type : kNarrowTypes) {
    if (mentions(run.precision, type)) throw NotModelled{"fp8 or fp4 products"};
  }
  if (mentions(run.precision, "bf16")) return Precision::bf16;
  if (mentions(run.precision, "fp16")) return Precision::fp16;
  if (mentions(run.precision, "fp32")) return Precision::fp32;
  throw NotModelled{"precision not stated"};
}

Recompute recompute_of(const Run& run) {
  const std::string& text = run.recompute;
  if (text == "none") return Recompute::none;
  if (text.starts_with("full")) return Recompute::full;
  if (text == "selective" || text == "selective (core_attn)") return Recompute::selective;
  if (text.empty()) throw NotModelled{"recomputation not stated"};
  throw NotModelled{"recomputation of some operations or layers"};
}

// Where a source says nothing: bf16 came with PyTorch 2 and its fused attention.
AttentionKernel attention_of(const Run& run, Precision precision) {
  const std::string& text = run.flash_attention;
  if (text.starts_with("no")) return AttentionKernel::materialized;
  if (text.empty() && precision != Precision::bf16) return AttentionKernel::materialized;
  return AttentionKernel::flash;
}

std::string optimizer_of(const Run& run) {
  const std::string& text = run.optimizer;
  if (mentions(text, "muon")) throw NotModelled{"an optimizer that is not described"};
  if (mentions(text, "8-bit") || mentions(text, "8bit")) return "adam8bit";
  if (text.empty() || mentions(text, "adam")) return "adam";
  if (mentions(text, "sgd")) return "sgd";
  throw NotModelled{"an optimizer that is not described"};
}

Offload offload_of(const Run& run) {
  const std::string& text = run.offload;
  if (text.empty() || text == "none") return Offload::none;
  if (mentions(text, "activation")) throw NotModelled{"offload of activations"};
  if (mentions(text, "nvme") || mentions(text, "adaptive")) throw NotModelled{"offload to NVMe, or adaptive"};
  if (text.starts_with("full") || mentions(text, "optimizer+param")) return Offload::all;
  if (text.starts_with("optimizer")) return Offload::optimizer;
  throw NotModelled{"offload of parameters alone"};
}

}  // namespace

PlanOptions plan_options_of(const Run& run) {
  PlanOptions options;
  take_degrees(run, options);
  take_sharding(run, options);
  if (run.compile == "yes") throw NotModelled{"a compiled step"};
  const Precision precision = precision_of(run);
  options.dtype = precision;
  options.optimizer = optimizer_of(run);
  options.engine = run.engine;
  options.recompute = recompute_of(run);
  options.attention = attention_of(run, precision);
  options.dropout = run.dropout;
  options.offload = offload_of(run);
  options.overlap = run.overlap;
  options.partition_activations = run.partition_activations;
  take_batch(run, options);
  return options;
}

}  // namespace zeroplan::accuracy
