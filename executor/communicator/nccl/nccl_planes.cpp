#include "executor/communicator/nccl/nccl_planes.hpp"

#include <utility>

#include "executor/communicator/nccl/session.hpp"

namespace zeroplan::executor {

namespace {

using program::DataType;

ncclDataType_t type_of(DataType type) {
  switch (type) {
    case DataType::fp16:
      return ncclFloat16;
    case DataType::bf16:
      return ncclBfloat16;
    case DataType::int32:
      return ncclInt32;
    case DataType::uint8:
      return ncclUint8;
    default:
      return ncclFloat32;
  }
}

class NcclPlane final : public DataPlane {
 public:
  NcclPlane(std::shared_ptr<nccl::Session> session, std::size_t communicator, std::int64_t rank,
            std::int64_t size)
      : session_(std::move(session)),
        communicator_(communicator),
        rank_(rank),
        size_(size),
        sent_(static_cast<std::size_t>(size)),
        received_(static_cast<std::size_t>(size)) {}

  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return size_; }
  DataPlaneCapabilities capabilities() const override { return {.runs_beside = true}; }
  const Ledger& ledger() const override { return ledger_; }
  const Moved& moved() const override { return moved_; }
  std::string text() const override { return session_->text(); }

  void enqueue(const Transfer& transfer, Device& /*device*/, program::Stream stream,
               const Watch& watch) override {
    Call call = call_of(transfer, rank_, size_);
    call.sequence = next_sequence(transfer);
    enter(ledger_, transfer.kind, call);
    session_->issue(communicator_, call, stream, watch, [&](ncclComm_t communicator, cudaStream_t on) {
      return call.elements == 0 ? ncclSuccess : start(transfer, communicator, on);
    });
    // NCCL tells nobody what it moved.
    moved_.add(transfer.kind, carried_bytes(transfer.kind, call, rank_, size_));
  }

 private:
  std::uint64_t next_sequence(const Transfer& transfer) {
    if (transfer.kind == TransferKind::send) return sent_[static_cast<std::size_t>(transfer.other)]++;
    if (transfer.kind == TransferKind::receive) return received_[static_cast<std::size_t>(transfer.other)]++;
    return sequence_++;
  }

  ncclResult_t start(const Transfer& transfer, ncclComm_t communicator, cudaStream_t stream) const {
    const Tensor& whole = transfer.whole;
    const auto elements = static_cast<std::size_t>(whole.elements);
    const std::size_t part = elements / static_cast<std::size_t>(size_);
    const ncclDataType_t type = type_of(whole.type);
    const int other = static_cast<int>(transfer.other);
    switch (transfer.kind) {
      case TransferKind::all_reduce:
        return ncclAllReduce(whole.data, whole.data, elements, type,
                             transfer.reduction == Reduction::sum ? ncclSum : ncclMax, communicator, stream);
      case TransferKind::reduce_scatter:
        return ncclReduceScatter(whole.data, whole.data + rank_ * (whole.bytes() / size_), part, type,
                                 ncclSum, communicator, stream);
      case TransferKind::all_gather:
        return ncclAllGather(transfer.own.data, whole.data, part, type, communicator, stream);
      case TransferKind::broadcast:
        return ncclBroadcast(whole.data, whole.data, elements, type, other, communicator, stream);
      case TransferKind::send:
        return ncclSend(whole.data, elements, type, other, communicator, stream);
      case TransferKind::receive:
        break;
    }
    return ncclRecv(whole.data, elements, type, other, communicator, stream);
  }

  std::shared_ptr<nccl::Session> session_;
  std::size_t communicator_;
  std::int64_t rank_, size_;
  std::uint64_t sequence_ = 0;
  std::vector<std::uint64_t> sent_, received_;  // messages so far, by the other rank
  Ledger ledger_;
  Moved moved_;
};

// The one block that the device has from nccl_blocks(), where all ranks have one and those are alike; else empty.
std::span<std::byte> common_block(ControlPlane& world, const CudaStreams& streams) {
  const std::vector<std::span<std::byte>> blocks = streams.source_blocks();
  const std::size_t own = blocks.size() == 1 ? blocks[0].size() : 0;
  for (const std::size_t bytes : gathered(world, own)) {
    if (bytes != own || bytes == 0) return {};
  }
  return blocks[0];
}

}  // namespace

std::vector<std::unique_ptr<DataPlane>> make_nccl_planes(ControlPlane& world, Device& device,
                                                         std::span<const program::Group> groups,
                                                         const NcclOptions& options) {
  std::vector<std::unique_ptr<DataPlane>> planes;
  if (groups.empty()) return planes;
  CudaStreams& streams = cuda_streams_of(device);
  const auto session = std::make_shared<nccl::Session>(world, streams, options);
  for (const program::Group& group : groups) {
    const std::size_t communicator = session->split(group.first_of(world.rank()), group.rank);
    planes.push_back(std::make_unique<NcclPlane>(session, communicator, group.rank, group.size));
  }
  if (const std::span<std::byte> block = common_block(world, streams); !block.empty()) {
    session->use_as_window(block);
  }
  return planes;
}

}  // namespace zeroplan::executor
