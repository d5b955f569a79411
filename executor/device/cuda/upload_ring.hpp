#pragma once

#include <array>
#include <span>

#include "executor/device/cuda/handles.hpp"

namespace zeroplan::executor::cuda {

// Pinned memory through which data of the host goes to the device, so that the host need not wait for the copy. Pieces are
// packed into slots, and a slot is used again when the copies out of it are done.
class UploadRing {
 public:
  UploadRing();

  // Copies in the stream's order. `from` may be changed once it returns.
  void upload(std::byte* to, std::span<const std::byte> from, cudaStream_t stream);
  // Holds back what follows on the stream until all that was uploaded is there.
  void hold(cudaStream_t stream) const;

 private:
  static constexpr std::size_t kSlots = 4;
  static constexpr std::size_t kSlotBytes = std::size_t{1} << 20;

  // What is packed into one slot goes to one stream, so that its event says when it is free.
  struct Slot {
    EventHandle copied = make_event(false);
    cudaStream_t stream = nullptr;
    std::size_t used = 0;
  };

  void next_slot();

  PinnedMemory memory_;
  std::array<Slot, kSlots> slots_;
  std::size_t current_ = 0;
};

}  // namespace zeroplan::executor::cuda
