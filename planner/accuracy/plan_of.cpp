#include <array>
#include <charconv>

#include "planner/accuracy/modelled_run.hpp"
#include "planner/accuracy/words.hpp"

namespace zeroplan::accuracy {
namespace {

using describe::AttentionKernel;
using describe::Offload;
using describe::PlanOptions;
using describe::Precision;
using describe::Recompute;

struct Words {
  std::string_view part;
  std::string_view reason;
};

// What a source's own words on sharding and precision say that a plan cannot.
constexpr std::array kOtherAlgorithms{Words{"ZeRO++", "ZeRO++: quantised or hierarchical collectives"},
                                      Words{"DeepCompile", "a compiled step"},
                                      Words{"BMTrain", "another framework's own sharding"},
                                      Words{"Ulysses", "context parallelism"},
                                      Words{"HSDP", "states sharded over a part of the ranks"},
                                      Words{"within groups", "states sharded over a part of the ranks"}};

constexpr std::array kOtherPrecisions{
    Words{"fp8", "fp8 or fp4 products"}, Words{"float8", "fp8 or fp4 products"},
    Words{"fp4", "fp8 or fp4 products"}, Words{"pure", "16-bit optimizer states"},
    Words{"bf16 master", "16-bit optimizer states"}};

template <std::size_t n>
void refuse_words(std::string_view text, const std::array<Words, n>& list) {
  for (const Words& words : list) {
    if (mentions(text, words.part)) throw NotModelled{std::string(words.reason)};
  }
}

// "optimizer-state sharding within 8 ranks": 8.
std::optional<std::int64_t> sharding_ranks(std::string_view text) {
  constexpr std::string_view kBefore = "within ";
  const std::size_t start = text.find(kBefore);
  if (start == std::string_view::npos) return std::nullopt;
  text.remove_prefix(start + kBefore.size());
  std::int64_t ranks = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  if (error != std::errc{}) return std::nullopt;
  return ranks;
}

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
  if (sharding_ranks(run.sharding).value_or(*options.dp) < *options.dp) {
    throw NotModelled{"states sharded over a part of the ranks"};
  }
  const bool is_sequence_parallel = mentions(run.sharding, "sequence parallel") ||
                                    mentions(run.sharding, "FSDP2") ||
                                    mentions(run.notes, "sequence-parallel");
  if (*options.tp > 1 && is_sequence_parallel) {
    throw NotModelled{"activations divided over tensor-parallel ranks (sequence parallelism)"};
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
  refuse_words(run.precision, kOtherPrecisions);
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
  if (mentions(text, "bf16 states")) throw NotModelled{"16-bit optimizer states"};
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

// Megatron's kernels under DeepSpeed's states are Megatron's pace; what no engine describes runs on PyTorch.
// Megatron-LM 2 of the end of 2020 brought fused kernels. DeepSpeed was run with Megatron-LM before 2021,
// when Hugging Face took it up.
std::string engine_of(const Run& run) {
  const bool is_megatron = mentions(run.sharding, "Megatron") || mentions(run.precision, "fp32 grad");
  const bool is_deepspeed = mentions(run.sharding, "DeepSpeed");
  if (mentions(run.sharding, "llm.c")) return "native";
  if (is_megatron && mentions(run.notes, "Megatron 1.1.5")) return "megatron-v1";
  if ((is_megatron || is_deepspeed) && is_before(run.date, "2021")) return "megatron-v1";
  if (is_megatron) return run.zero_stage.value_or(0) > 1 ? "megatron-deepspeed" : "megatron";
  if (is_deepspeed) return "deepspeed";
  if (run.source == "llm-foundry") return "llm-foundry";
  if (mentions(run.sharding, "FSDP")) return "fsdp2";
  return "pytorch";
}

// DeepSpeed's gathers of stage 3 waited for each other and for the kernels until its pull request 1188.
std::optional<bool> overlap_of(const Run& run) {
  const bool waits =
      run.zero_stage == 3 && mentions(run.sharding, "DeepSpeed") && is_before(run.date, "2021-07");
  return waits ? std::optional(false) : std::nullopt;
}

}  // namespace

PlanOptions plan_options_of(const Run& run) {
  refuse_words(run.sharding, kOtherAlgorithms);
  PlanOptions options;
  take_degrees(run, options);
  take_sharding(run, options);
  if (mentions(run.notes, "liger")) throw NotModelled{"a fused loss that keeps no logits"};
  if (run.compile == "yes") throw NotModelled{"a compiled step"};
  const Precision precision = precision_of(run);
  options.dtype = precision;
  options.optimizer = optimizer_of(run);
  options.engine = engine_of(run);
  options.recompute = recompute_of(run);
  options.attention = attention_of(run, precision);
  // 0.1 is the default of Megatron-LM's and Hugging Face's GPT-2; llm.c's and later models have none.
  options.dropout = mentions(run.model, "gpt") && options.engine != "native";
  options.offload = offload_of(run);
  options.overlap = overlap_of(run);
  if (mentions(run.notes, "partitioned activation")) options.partition_activations = true;
  take_batch(run, options);
  return options;
}

}  // namespace zeroplan::accuracy
