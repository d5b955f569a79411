"""Mistakes in the GPU's path, each of which tests on the emulated GPU must tell: what it is, file, what stands there once, what
replaces it, and the tests that look (a filter of source files for zeroplan_emulation_tests)."""

DEVICE = "executor/device/cuda"
KERNELS = f"{DEVICE}/kernels"
PLAYER = "executor/player.cpp"
SESSION = "executor/communicator/nccl/session.cpp"
NCCL = "executor/communicator/nccl/nccl_planes.cpp"
SHARED = "executor/communicator/devices/shared_card_planes.cpp"

TRAINING = "*training_test*,*plans_test*"
DEVICE_TESTS = "*device_test*"
TABLE = "*kernel_table_test*"
ATTENTION = "*attention_test*"
PRODUCTS = "*product_test*"
NCCL_TESTS = "*nccl_test*"
JOINED = "*joined_test*"
VIRTUAL = "*virtual_ranks_test*,*plans_test*"

MUTANTS = [
    # ---- an event left out ----
    ("waits of commands are left out", PLAYER,
     "  for (std::size_t i = 0; i < command.waits; ++i) {", "  for (std::size_t i = 0; false && i < command.waits; ++i) {", TRAINING),
    ("commands signal nothing", PLAYER,
     "  if (command.signals != Command::kNoEvent) device_.record(events_[command.signals], command.stream);", "  (void)command;", TRAINING),
    ("compute does not wait for other streams at the end", PLAYER,
     "    device_.wait(kCompute, meetings_[s], traffic ? &waited_for_traffic_seconds_ : nullptr);", "    (void)traffic;", TRAINING),
    ("other streams do not wait for compute at the end", PLAYER,
     "    if (static_cast<Stream>(s) != kCompute) device_.wait(static_cast<Stream>(s), all, nullptr);", "    (void)all;", TRAINING),
    ("a replay does not wait for what its first kernel waits for", PLAYER,
     "  wait_for(step, first);\n  Replay& replay", "  (void)first;\n  Replay& replay", TRAINING),
    ("a replay does not signal what its last kernel signals", PLAYER,
     "packed(last)});\n  signal(last);", "packed(last)});", TRAINING),
    ("a wait inside a recording is dropped", PLAYER,
     "(i == begin || step.commands[i].waits == 0)", "(i == begin || step.commands[i].waits < 100)", TRAINING),
    ("a signal inside a recording is dropped", PLAYER,
     "        if (step.commands[i++].signals != Command::kNoEvent) break;",
     "        ++i;", TRAINING),
    ("the device's wait does nothing", f"{DEVICE}/cuda_device.cpp",
     'cuda::check(cudaStreamWaitEvent(of(stream), events_[event].get(), 0), "cudaStreamWaitEvent");', "(void)event;", f"{DEVICE_TESTS},{TRAINING}"),
    ("the device's record does nothing", f"{DEVICE}/cuda_device.cpp",
     'cuda::check(cudaEventRecord(events_[event].get(), of(stream)), "cudaEventRecord");', "(void)event, (void)stream;", f"{DEVICE_TESTS},{TRAINING}"),
    ("synchronize() does not wait", f"{DEVICE}/cuda_device.cpp",
     "  const cudaError_t error = finish_all();", "  const cudaError_t error = cudaSuccess;", f"{DEVICE_TESTS},{TRAINING}"),
    ("a download does not wait", f"{DEVICE}/cuda_device.cpp",
     'cuda::check(cudaStreamSynchronize(downloads_.get()), "cudaStreamSynchronize");', "", f"{DEVICE_TESTS},{TRAINING}"),
    ("a download does not wait for uploads", f"{DEVICE}/upload_ring.cpp",
     'check(cudaStreamWaitEvent(stream, slot.copied.get(), 0), "cudaStreamWaitEvent");', "(void)slot, (void)stream;", DEVICE_TESTS),
    ("ranks of a card do not wait until the others' vectors are there", SHARED,
     "    for (const auto& points : points_) wait(on, points->ready);", "", VIRTUAL),
    ("ranks of a card do not wait until the others are done", SHARED,
     "    for (const auto& points : points_) wait(on, points->done);", "", VIRTUAL),
    ("a receiver does not wait for what is sent", SHARED,
     "    wait(on, points_[static_cast<std::size_t>(transfer.other)]->ready);", "", VIRTUAL),
    ("a sender does not wait until it was received", SHARED,
     "    wait(on, points_[static_cast<std::size_t>(transfer.other)]->done);", "", VIRTUAL),
    ("collectives of several groups do not wait for each other", SESSION,
     "  if (!running_.empty() && last_stream_ != on) {", "  if (false && !running_.empty() && last_stream_ != on) {", NCCL_TESTS),

    # ---- memory that is given on too early ----
    ("staging memory is written again while it is copied", f"{DEVICE}/upload_ring.cpp",
     '  check(cudaEventSynchronize(slot.copied.get()), "cudaEventSynchronize");', "", DEVICE_TESTS),
    ("staging memory of one stream is used by another", f"{DEVICE}/upload_ring.cpp",
     "    if (slots_[current_].used == kSlotBytes ||\n        (slots_[current_].used > 0 && slots_[current_].stream != stream))\n      next_slot();",
     "    if (slots_[current_].used == kSlotBytes) next_slot();", DEVICE_TESTS),
    ("memory that another stream still uses is taken again", "planner/program/order.cpp",
     "      for (std::size_t s = 0; s < kStreams; ++s) pending_[s] = std::max(pending_[s], open[s]);", "", TRAINING),
    ("instructions of the host are forgotten while they may run", f"{DEVICE}/host_calls.cpp",
     "  run(HostWork{&HostCalls::execute, this, &own}, stream);", "  run(HostWork{&HostCalls::execute, this, &own}, stream);\n  kernels_.clear();", f"{DEVICE_TESTS},{TRAINING}"),

    # ---- a captured argument ----
    ("the learning rate is captured", f"{KERNELS}/optimizer.cu",
     "  const float rate = scalar_at(scalars, kLearningRate);", "  const float rate = 1e-3F;", f"{TABLE},{TRAINING}"),
    ("what a recording counts is counted twice", f"{DEVICE}/cuda_device.cpp",
     "  products_.count(-products);", "", DEVICE_TESTS),
    ("a bias is that of the first product of its shape", f"{DEVICE}/product.cpp",
     "  if (product.has_bias) point(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);\n", "", PRODUCTS),
    ("recordings outlive the step that they are of", PLAYER,
     "  times_played_ = 0;\n  find_sections(step);", "  find_sections(step);", TRAINING),

    # ---- communicators ----
    ("ranks of a group are in another order", NCCL,
     "session->split(group.first_of(world.rank()), group.rank);", "session->split(group.first_of(world.rank()), group.size - group.rank);", f"{NCCL_TESTS},{TRAINING}"),
    ("groups are of other ranks", NCCL,
     "session->split(group.first_of(world.rank()), group.rank);", "session->split(0, world.rank());", f"{NCCL_TESTS},{TRAINING}"),
    ("a reduce-scatter leaves its sum in the next partition", NCCL,
     "whole.data + rank_ * (whole.bytes() / size_)", "whole.data + (rank_ + 1) % size_ * (whole.bytes() / size_)", f"{NCCL_TESTS},{TRAINING}"),
    ("an all-gather gathers the first partition", NCCL,
     "ncclAllGather(transfer.own.data, whole.data", "ncclAllGather(whole.data, whole.data", f"{NCCL_TESTS},{TRAINING}"),
    ("a maximum is a sum", NCCL, "ncclSum : ncclMax", "ncclSum : ncclSum", f"{NCCL_TESTS},{TRAINING}"),
    ("bf16 is taken for fp16", NCCL, "      return ncclBfloat16;", "      return ncclFloat16;", NCCL_TESTS),
    ("an old NCCL is taken", SESSION, "versions[rank] >= kOldest && ", "", NCCL_TESTS),
    ("nobody watches for ranks that do not come", SESSION,
     "  watcher_ = std::jthread([this](const std::stop_token& stopped) { watch(stopped); });", "", NCCL_TESTS),
    ("ranks of a card sum in an order of their own", SHARED,
     "    cuda::reduce_in_order(places,", "    if (share.first > 0) std::reverse(places.begin(), places.end());\n    cuda::reduce_in_order(places,", VIRTUAL),
    ("ranks of a card go on before all have recorded", SHARED,
     "    group_->barrier();  // all have recorded theirs\n", "", VIRTUAL),

    # ---- masks of dropout ----
    ("all micro-batches have the same masks", "executor/lowering.cpp",
     "  const std::int64_t micro_batch = ranks.rank * passes + pass;", "  const std::int64_t micro_batch = 0 * (ranks.rank * passes + pass);",
     TRAINING),
    ("all layers have the same masks", "executor/lowering.cpp",
     "registers.layer + operand.layer_offset);\n  if", "0 * (registers.layer + operand.layer_offset));\n  if", TRAINING),
    ("micro-batches with masks of their own are taken for alike", "executor/lowering.cpp",
     "x.iteration != y.iteration || x.mask != y.mask ||", "x.iteration != y.iteration ||", TRAINING),

    # ---- a missing barrier ----
    ("sums of a block: no barrier before they are read", "executor/device/cuda/kernel_code.cuh",
     "  __syncthreads();\n  ZEROPLAN_UNROLL", "  ZEROPLAN_UNROLL", TABLE),
    ("sums of a block: none before the slots are written again", "executor/device/cuda/kernel_code.cuh",
     "neutral);\n  __syncthreads();", "neutral);", TABLE),
    ("plain attention: no barrier before a tile is written again", f"{KERNELS}/attention_plain.cu",
     "*= kept;\n    }\n    __syncthreads();\n", "*= kept;\n    }\n", ATTENTION),
    ("norm backward: no barrier before warps are added", f"{KERNELS}/norm_backward.cu", "    __syncthreads();\n", "", TABLE),
    ("column sums: no barrier before lanes are added", f"{KERNELS}/column_sums.cu",
     "  slots[threadIdx.x] = value;\n  __syncthreads();", "  slots[threadIdx.x] = value;", TABLE),
    ("column sums: none before the slots are written again", f"{KERNELS}/column_sums.cu",
     "  __syncthreads();\n  return sum;", "  return sum;", TABLE),
    ("embedding: no barrier before a tile is read", f"{KERNELS}/embedding.cu",
     "    if (other < embedding.tokens) tile[threadIdx.x] = embedding.row(indices, other);\n    __syncthreads();",
     "    if (other < embedding.tokens) tile[threadIdx.x] = embedding.row(indices, other);", TABLE),
    ("embedding: none before a tile is written again", f"{KERNELS}/embedding.cu",
     "    __syncthreads();\n    if (other", "    if (other", TABLE),
    ("loss: no barrier between halves", f"{KERNELS}/cross_entropy.cu", "    __syncthreads();\n", "", TABLE),
    ("attention: values are read before they have come", f"{KERNELS}/attention_forward.cu",
     "    wait_for_copies<0>();\n    __syncthreads();  // values are there, keys are free", "    __syncthreads();", ATTENTION),
    ("attention: keys are written while they are read", f"{KERNELS}/attention_forward.cu",
     "    __syncthreads();  // values are there, keys are free\n", "", ATTENTION),
    ("attention: values are written while they are read", f"{KERNELS}/attention_forward.cu",
     "    __syncthreads();  // keys are there, values are free\n", "", ATTENTION),

    # ---- an operand that is not declared, or does not what is said ----
    ("the scalars of an update are not declared", f"{DEVICE}/launch.cpp",
     "  if (reads_step(kernel)) {", "  if (false && reads_step(kernel)) {", f"{TRAINING},{DEVICE_TESTS},{TABLE}"),
    ("no operand is declared as written", f"{DEVICE}/launch.cpp",
     "writes = role != program::Role::in;", "writes = false;", f"{TRAINING},{DEVICE_TESTS}"),
    ("no operand is declared as read", f"{DEVICE}/launch.cpp",
     "reads = role != program::Role::out,", "reads = false,", f"{TRAINING},{DEVICE_TESTS}"),
    ("products add where they should set", f"{DEVICE}/product.cpp",
     "const float kept = product.adds ? 1 : 0;", "const float kept = 1;", f"{PRODUCTS},{TABLE}"),
    ("products are given no room", f"{DEVICE}/product.cpp",
     "static_cast<std::size_t>(workspace), launcher.stream", "static_cast<std::size_t>(0), launcher.stream", PRODUCTS),
    ("offloaded scalars are not copied back", f"{DEVICE}/host_calls.cpp",
     "    if (role != program::Role::in) back.emplace_back(tensor, mirror);", "    (void)role;", DEVICE_TESTS),
    ("what is written early is not looked at", f"{DEVICE}/dispatch.cpp",
     "      if (from < to + written.bytes && to < from + read.bytes) return false;", "", JOINED),
    ("a norm is of a sum that was not rounded", f"{KERNELS}/residual.cu", "        round_as(addition.out, values);\n", "", JOINED),
    ("the last kernel of a recording is lost", f"{DEVICE}/cuda_device.cpp",
     "Device::Recording CudaDevice::end_recording() {\n  keep_last();", "Device::Recording CudaDevice::end_recording() {", f"{JOINED},{DEVICE_TESTS}"),
    ("an error of a kernel is taken for none", f"{DEVICE}/launch.cpp",
     "  if (error == cudaSuccess) return;", "  if (error != cudaErrorUnknown) return;", f"{DEVICE_TESTS},{TRAINING}"),
]
