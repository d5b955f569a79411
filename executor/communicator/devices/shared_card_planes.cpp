#include "executor/communicator/devices/shared_card_planes.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <type_traits>
#include <utility>

#include "executor/communicator/ledger.hpp"
#include "executor/device/cuda/cuda_streams.hpp"
#include "executor/device/cuda/handles.hpp"
#include "executor/device/cuda/kernels/reduce.hpp"
#include "executor/error.hpp"

namespace zeroplan::executor {

namespace {

// A rank's two points in a call: its memory may be read and written, and it has read and written the others'. Every rank
// of a group holds everyone's, so that none is gone while another is to wait for it.
struct Points {
  cuda::EventHandle ready = cuda::make_event(false), done = cuda::make_event(false);
};

// What a rank shows the others in a call.
struct Shown {
  Call call;
  std::byte* whole = nullptr;
  std::byte* own = nullptr;
};
static_assert(std::is_trivially_copyable_v<Shown>);

class SharedCardPlane final : public DataPlane {
 public:
  SharedCardPlane(std::unique_ptr<Communicator> group, CudaStreams& streams)
      : group_(std::move(group)),
        streams_(streams),
        sent_(static_cast<std::size_t>(group_->size())),
        received_(static_cast<std::size_t>(group_->size())) {
    require_one_card();
    cuda::check(cudaSetDevice(streams.ordinal()), "cudaSetDevice");
    const auto own = std::make_shared<Points>();
    for (const auto* other : gathered(*group_, &own)) points_.push_back(*other);
    group_->barrier();  // all have copied them
  }

  std::int64_t rank() const override { return group_->rank(); }
  std::int64_t size() const override { return group_->size(); }
  DataPlaneCapabilities capabilities() const override {
    return {.sums_in_rank_order = true, .runs_beside = true};
  }
  const Ledger& ledger() const override { return ledger_; }
  const Moved& moved() const override { return moved_; }
  std::string text() const override { return "copies and kernels within one GPU"; }

  void enqueue(const Transfer& transfer, Device& /*device*/, program::Stream stream,
               const Watch& watch) override {
    cudaStream_t on = streams_.start(stream, watch);
    Call call = call_of(transfer, rank(), size());
    switch (transfer.kind) {
      case TransferKind::send:
        call.sequence = sent_[static_cast<std::size_t>(transfer.other)]++;
        enter(ledger_, transfer.kind, call);
        send(transfer, call, on);
        break;
      case TransferKind::receive:
        call.sequence = received_[static_cast<std::size_t>(transfer.other)]++;
        enter(ledger_, transfer.kind, call);
        receive(transfer, call, on);
        break;
      default:
        call.sequence = sequence_++;
        enter(ledger_, transfer.kind, call);
        meet(transfer, call, on);
    }
    moved_.add(transfer.kind, carried_bytes(transfer.kind, call, rank(), size()));
    streams_.finish(stream, watch);
  }

 private:
  void require_one_card() {
    const std::vector<std::array<std::int64_t, 2>> cards =
        gathered(*group_, std::array<std::int64_t, 2>{getpid(), streams_.ordinal()});
    for (std::size_t other = 0; other < cards.size(); ++other) {
      if (cards[other] == cards[0]) continue;
      throw NotPossible(fmt::format(
          "ranks that are threads share one GPU, but rank 0 of a group is on GPU {} and rank {} on GPU {}{}: "
          "start a process for each GPU",
          cards[0][1], other, cards[other][1], cards[other][0] == cards[0][0] ? "" : " in another process"));
    }
    if (size() > static_cast<std::int64_t>(cuda::kMostPlaces)) {
      throw NotPossible(
          fmt::format("a group of {} ranks on one GPU; {} are possible", size(), cuda::kMostPlaces));
    }
  }

  Points& own_points() { return *points_[static_cast<std::size_t>(rank())]; }
  void wait(cudaStream_t on, const cuda::EventHandle& event) {
    cuda::check(cudaStreamWaitEvent(on, event.get(), 0), "cudaStreamWaitEvent");
  }
  void record(const cuda::EventHandle& event, cudaStream_t on) {
    cuda::check(cudaEventRecord(event.get(), on), "cudaEventRecord");
  }
  void copy(std::byte* to, const std::byte* from, Bytes bytes, cudaStream_t on) {
    if (bytes == 0 || to == from) return;
    cuda::check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, on),
                "cudaMemcpyAsync");
  }

  void require_alike(std::int64_t one, const Call& its, std::int64_t other, const Call& theirs) {
    if (its == theirs) return;
    const std::string reason =
        fmt::format("ranks are out of step: rank {} of a group is in {}; rank {} is in {}", one, text_of(its),
                    other, text_of(theirs));
    group_->abort(reason);
    throw CommunicationError(reason);
  }

  void meet(const Transfer& transfer, const Call& call, cudaStream_t on) {
    record(own_points().ready, on);
    const std::vector<Shown> all = gathered(*group_, Shown{call, transfer.whole.data, transfer.own.data});
    for (std::size_t other = 1; other < all.size(); ++other) {
      require_alike(0, all[0].call, static_cast<std::int64_t>(other), all[other].call);
    }
    for (const auto& points : points_) wait(on, points->ready);
    move(transfer, all, on);
    record(own_points().done, on);
    group_->barrier();  // all have recorded theirs
    for (const auto& points : points_) wait(on, points->done);
  }

  // This rank's part of a call.
  void move(const Transfer& transfer, const std::vector<Shown>& all, cudaStream_t on) {
    const Tensor& whole = transfer.whole;
    const Bytes part = whole.bytes() / size();
    switch (transfer.kind) {
      case TransferKind::all_reduce:
        return reduce(whole, share_of(whole.elements, size(), rank()), transfer.reduction, -1, all, on);
      case TransferKind::reduce_scatter: {
        const Elements elements = whole.elements / size();
        return reduce(whole, {rank() * elements, elements}, Reduction::sum, rank(), all, on);
      }
      case TransferKind::all_gather:
        for (std::int64_t i = 0; i < size(); ++i) {
          const std::int64_t from = (rank() + i) % size();
          copy(whole.data + from * part, all[static_cast<std::size_t>(from)].own, part, on);
        }
        return;
      default:
        return copy(whole.data, all[static_cast<std::size_t>(transfer.other)].whole, whole.bytes(), on);
    }
  }

  static void reduce(const Tensor& whole, Share share, Reduction reduction, std::int64_t to,
                     const std::vector<Shown>& all, cudaStream_t on) {
    std::vector<std::byte*> places;
    places.reserve(all.size());
    for (const Shown& other : all)
      places.push_back(other.whole + share.first * program::bytes_of(whole.type));
    cuda::reduce_in_order(places, to, whole.type, share.count,
                          reduction == Reduction::sum ? cuda::Reduced::sum : cuda::Reduced::maximum, on);
  }

  // The receiver copies, and answers when it has issued that.
  void send(const Transfer& transfer, const Call& call, cudaStream_t on) {
    record(own_points().ready, on);
    Shown shown{call, transfer.whole.data, nullptr};
    group_->send(tensor_of(shown), transfer.other);
    group_->receive(tensor_of(shown), transfer.other);
    wait(on, points_[static_cast<std::size_t>(transfer.other)]->done);
  }
  void receive(const Transfer& transfer, const Call& call, cudaStream_t on) {
    Shown shown;
    group_->receive(tensor_of(shown), transfer.other);
    require_alike(transfer.other, shown.call, rank(), call);
    wait(on, points_[static_cast<std::size_t>(transfer.other)]->ready);
    copy(transfer.whole.data, shown.whole, transfer.whole.bytes(), on);
    record(own_points().done, on);
    group_->send(tensor_of(shown), transfer.other);
  }
  static Tensor tensor_of(Shown& shown) {
    return {reinterpret_cast<std::byte*>(&shown), program::DataType::uint8, sizeof shown};
  }

  std::unique_ptr<Communicator> group_;
  CudaStreams& streams_;
  std::vector<std::shared_ptr<Points>> points_;  // by rank
  std::uint64_t sequence_ = 0;
  std::vector<std::uint64_t> sent_, received_;  // messages so far, by the other rank
  Ledger ledger_;
  Moved moved_;
};

}  // namespace

std::vector<std::unique_ptr<DataPlane>> make_shared_card_planes(ControlPlane& world, Device& device,
                                                                std::span<const program::Group> groups) {
  CudaStreams& streams = cuda_streams_of(device);
  std::vector<std::unique_ptr<DataPlane>> planes;
  planes.reserve(groups.size());
  for (const program::Group& group : groups) {
    planes.push_back(
        std::make_unique<SharedCardPlane>(world.split(group.first_of(world.rank()), group.rank), streams));
  }
  return planes;
}

}  // namespace zeroplan::executor
