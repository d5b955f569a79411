#include "executor/device/cuda/upload_ring.hpp"

#include <algorithm>

namespace zeroplan::executor::cuda {

UploadRing::UploadRing() : memory_(allocate_pinned(static_cast<Bytes>(kSlots * kSlotBytes))) {}

void UploadRing::next_slot() {
  current_ = (current_ + 1) % kSlots;
  Slot& slot = slots_[current_];
  check(cudaEventSynchronize(slot.copied.get()), "cudaEventSynchronize");
  slot.used = 0;
}

void UploadRing::upload(std::byte* to, std::span<const std::byte> from, cudaStream_t stream) {
  while (!from.empty()) {
    if (slots_[current_].used == kSlotBytes ||
        (slots_[current_].used > 0 && slots_[current_].stream != stream))
      next_slot();
    Slot& slot = slots_[current_];
    const std::size_t bytes = std::min(from.size(), kSlotBytes - slot.used);
    std::byte* staged = memory_.get() + current_ * kSlotBytes + slot.used;
    std::copy_n(from.data(), bytes, staged);
    check(cudaMemcpyAsync(to, staged, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    check(cudaEventRecord(slot.copied.get(), stream), "cudaEventRecord");
    slot.stream = stream;
    slot.used += bytes;
    to += bytes;
    from = from.subspan(bytes);
  }
}

void UploadRing::hold(cudaStream_t stream) const {
  for (const Slot& slot : slots_)
    check(cudaStreamWaitEvent(stream, slot.copied.get(), 0), "cudaStreamWaitEvent");
}

}  // namespace zeroplan::executor::cuda
