#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/describe/text/document.hpp"
#include "planner/described.hpp"
#include "planner/units.hpp"

namespace zeroplan::describe {

// Memory traffic of a fused loss for each logit: fp32 logits read twice and, for the 16-bit gradient, once
// more.
inline constexpr double kFusedLossBytes = 4 + 4 + (4 + 2);

// What a training framework does in its own way, as data (planner/program/engines/*.yaml, each field with its
// source there). The compiler consults it; `native` is our own executor.
struct Engine {
  std::string name;
  std::string title;
  std::string source;

  // Formulas of memory, with no program behind them that could run.
  bool arithmetic_only = false;
  // Gradients are kept in fp32 although the model computes in 16 bit.
  bool fp32_gradients_with_fp16 = false;
  bool fp32_gradients_with_bf16 = false;
  // Parameters are stored in fp32, and so are their own master copy; they are cast when gathered (FSDP2).
  bool fp32_parameters = false;
  // Beside the master copy each partition keeps an fp32 gradient where gradients are 16 bit (DeepSpeed stages
  // 1 to 3, Megatron-LM with fp16). Without effect where gradients are fp32 already.
  bool fp32_gradient_partition = false;
  // With that, stage 0 keeps the fp32 gradient of the whole model too (Megatron-LM with fp16: 20 bytes per
  // parameter).
  bool fp32_gradient_at_stage_0 = false;
  // With that, stage 3 keeps no 16-bit gradient partition.
  bool fp32_gradient_replaces_stage_3 = false;
  // Stage 2 is counted with whole 16-bit gradients (the published DeepSpeed estimator).
  bool whole_gradients_at_stage_2 = false;

  std::int64_t prefetch_layers = 1;  // ZeRO-3 gathers so many layers ahead; 0: only the one that is computed
  std::int64_t vocabulary_multiple = 1;  // vocabulary padded to a multiple of this x tensor-parallel degree
  Elements partition_multiple = 1;       // partitions padded to a multiple of so many elements
  Bytes alignment_bytes = 1;             // each buffer starts at a multiple of this
  // Default size of the constant buffers (C_B). 0: the engine counts no bucket (the published DeepSpeed
  // estimator).
  Bytes bucket_bytes = 0;
  // At stages 2 and 3 gradients pass through so many buffers of the bucket's size; 0: through two of one
  // layer's size.
  std::int64_t gradient_buckets = 0;
  // Where reductions run beside kernels: so many buffers at stage 2, and at stage 3 room for the gradients of at least
  // so many layers. 0: as `gradient_buckets`.
  std::int64_t overlapped_gradient_buckets = 0;
  bool step_copies_whole_partition =
      false;  // the optimizer step holds an fp32 copy of the whole partition at once
  // fp32 tensors of tokens x vocabulary alive in the loss, beside the gradient; 0: one in the compute type.
  std::int64_t fp32_logits_copies = 1;
  // Backward kernels write input gradients over activations that are no longer needed.
  bool backward_in_place = true;
  // Full recomputation of a layer ends with the last activation that backward needs: not with its output.
  bool recompute_stops_early = false;
  // Input gradients are summed over tensor-parallel ranks while the weight's gradient is computed
  // (Megatron-LM).
  bool tensor_sum_beside_weight_gradient = false;
  // With accumulation over micro-batches below stage 2, the two parts of a tied table's gradient are added
  // apart before they join the accumulated one.
  bool tied_gradient_apart = false;
  // Under hybrid sharding each micro-batch's gradients are summed over the replicas; else once a step, accumulated.
  bool sums_replicas_each_micro_batch = false;
  // ZeRO stages that the engine has.
  std::vector<int> stages{0, 1, 2, 3};
  // Of these, those that it has over a part of the ranks too (`shard`).
  std::vector<int> hybrid_stages{1, 2, 3};
  // It has hpZ of ZeRO++ (`secondary_shard`).
  bool has_secondary_shard = false;
  // Its times and memory are held against runs on GPUs; docs/accuracy.md has them.
  bool held_against_gpu_runs = false;
  // Memory the allocator holds beyond what was asked for at the peak, as a fraction (fragmentation,
  // rounding).
  double allocator_slack = 0;
  // What it lays out it asks from the driver of a GPU, which gives whole granules (Overheads::allocator_round_bytes).
  bool allocates_from_driver = false;
  // Data-parallel traffic runs beside the kernels, where a plan does not say (docs/plans.md, overlap):
  // gradients of stages 0 to 2, and what stage 3 gathers and reduces.
  bool overlaps_gradients = true;
  bool overlaps_stage_3 = true;
  bool overlaps_checkpoint_copies = true;  // of P_a+cpu
  // ---- pace; docs/engines.md says what it is read for ----
  double matmul_fraction = 1;     // of what large products reach on the device
  double attention_fraction = 1;  // the same of fused attention
  double kernel_gap_us = 2;       // between two kernels
  double host_issue_us = 5;       // of the host, to issue a kernel
  double traffic_slowdown = 0;    // what kernels lose by a collective beside them, over the collective's time
  // The fused softmax takes multiples of so many heads x sequences; others go through five kernels. 0: there
  // is none.
  std::int64_t fused_softmax_batches = 1;
  // Memory traffic of the loss for each logit, forward and backward.
  double loss_bytes_per_logit = kFusedLossBytes;
  // Traffic of activations, rotary embeddings, softmax, dropout and loss over fused kernels', on an A100.
  double elementwise_factor = 1;
  // Host memory for offloaded state is this many times its size (pinned staging, copies).
  double host_factor = 1;
  // Host bytes per parameter and process while the model is being loaded whole; 0 when it is built
  // partitioned.
  Bytes host_load_bytes_per_parameter = 0;
  // The model is built partitioned: a process loads no more than its largest layer at once.
  bool partitioned_loading = false;
};

// Reads an engine (docs/engines.md), strictly: every figure with its source. Throws ConfigurationError.
Engine read_engine_yaml(const Document& document);

// By name or alias, in any case, with or without '-' and '_'; throws ConfigurationError with the nearest
// name.
Described<Engine> find_engine(const std::string& name);
// Names of the shipped engines, sorted.
std::vector<std::string> engine_names();

}  // namespace zeroplan::describe
