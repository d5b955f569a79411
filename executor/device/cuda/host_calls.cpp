#include "executor/device/cuda/host_calls.hpp"

#include <algorithm>
#include <exception>

#include "executor/device/cpu/step_functions.hpp"
#include "planner/instructions/table.hpp"

namespace zeroplan::executor::cuda {

namespace {

constexpr Bytes kMirrorBytes = 4096;  // scalars are some hundred bytes
constexpr Bytes kMirrorAlignment = 64;

bool inside(const Tensor& tensor, const std::vector<std::span<const std::byte>>& blocks) {
  return std::any_of(blocks.begin(), blocks.end(), [&](std::span<const std::byte> block) {
    return tensor.data >= block.data() && tensor.data < block.data() + block.size();
  });
}

// Calls visit(operand, role) for each, and for the scalars of the settings.
template <class Operands, class Visit>
void for_each_operand(Operands& kernel, const Visit& visit) {
  const program::InstructionRow& row = program::row_of(kernel.op);
  for (std::size_t i = 0; i < row.operands.size() && row.operands[i].role != program::Role::none; ++i) {
    if (kernel.operands[i]) visit(kernel.operands[i], row.operands[i].role);
  }
  if (kernel.scalars) visit(kernel.scalars, program::Role::in);
}

}  // namespace

void HostCalls::enter(void* call) {
  const auto& own = *static_cast<const Call*>(call);
  if (own.self->failure_.any()) return;
  try {
    own.work.run(own.work.self, own.work.what);
  } catch (...) {
    own.self->failure_.note(std::current_exception());
  }
}

void HostCalls::run(const HostWork& work, cudaStream_t stream) {
  calls_.push_back({this, work});
  check(cudaLaunchHostFunc(stream, &HostCalls::enter, &calls_.back()), "cudaLaunchHostFunc");
}

bool HostCalls::takes(const Kernel& kernel, const std::vector<std::span<const std::byte>>& host_blocks) {
  if (host_blocks.empty()) return false;
  bool any_of_host = false;
  Bytes of_device = 0;
  for_each_operand(kernel, [&](const Tensor& tensor, program::Role) {
    if (inside(tensor, host_blocks)) {
      any_of_host = true;
    } else {
      of_device += round_up(tensor.bytes(), kMirrorAlignment);
    }
  });
  return any_of_host && of_device <= kMirrorBytes && cpu::step_function_of(kernel.op) != nullptr;
}

std::byte* HostCalls::mirror_of(cudaStream_t stream) {
  PinnedMemory& mirror = mirrors_[stream];
  if (!mirror) mirror = allocate_pinned(kMirrorBytes);
  return mirror.get();
}

void HostCalls::run(const Kernel& kernel, const std::vector<std::span<const std::byte>>& host_blocks,
                    cudaStream_t stream) {
  if (!workers_) workers_ = std::make_unique<cpu::Workers>(threads_);
  Kernel& own = kernels_.emplace_back(kernel);
  std::byte* mirror = mirror_of(stream);
  std::vector<std::pair<Tensor, std::byte*>> back;
  for_each_operand(own, [&](Tensor& tensor, program::Role role) {
    if (inside(tensor, host_blocks)) return;
    const auto bytes = static_cast<std::size_t>(tensor.bytes());
    check(cudaMemcpyAsync(mirror, tensor.data, bytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
    if (role != program::Role::in) back.emplace_back(tensor, mirror);
    tensor.data = mirror;
    mirror += round_up(tensor.bytes(), kMirrorAlignment);
  });
  run(HostWork{&HostCalls::execute, this, &own}, stream);
  for (const auto& [tensor, from] : back) {
    check(cudaMemcpyAsync(tensor.data, from, static_cast<std::size_t>(tensor.bytes()), cudaMemcpyHostToDevice,
                          stream),
          "cudaMemcpyAsync");
  }
}

void HostCalls::execute(void* self, const void* kernel) {
  auto& own = *static_cast<HostCalls*>(self);
  const std::lock_guard lock(own.working_);
  const auto& launch = *static_cast<const Kernel*>(kernel);
  cpu::run_function(cpu::step_function_of(launch.op), launch, *own.workers_);
}

}  // namespace zeroplan::executor::cuda
