#include "executor/communicator/exchange/exchange_communicator.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "executor/communicator/reduce.hpp"

namespace zeroplan::executor {

namespace {

class ExchangeCommunicator final : public Communicator {
 public:
  explicit ExchangeCommunicator(std::unique_ptr<exchange::Transport> transport)
      : transport_(std::move(transport)),
        rank_(transport_->rank()),
        size_(transport_->size()),
        sent_(static_cast<std::size_t>(size_)),
        received_(static_cast<std::size_t>(size_)) {}

  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return size_; }
  const Ledger& ledger() const override { return ledger_; }
  const Moved& moved() const override { return moved_; }

  void all_reduce(Tensor whole, Reduction reduction) override {
    moving(TransferKind::all_reduce, numbered(all_reduce_call(whole, reduction)), [&](const Call& call) {
      const Shares shares = shares_of([&](std::int64_t r) { return share_of(whole.elements, size_, r); });
      reduce_own_share(call, whole, shares, reduction);
      gather_shares(call, whole, shares);
    });
  }

  void reduce_scatter(Tensor whole) override {
    moving(TransferKind::reduce_scatter, numbered(reduce_scatter_call(whole, size_)),
           [&](const Call& call) { reduce_own_share(call, whole, partitions_of(whole), Reduction::sum); });
  }

  void all_gather(Tensor own, Tensor whole) override {
    moving(TransferKind::all_gather, numbered(all_gather_call(own, whole, rank_, size_)),
           [&](const Call& call) {
             std::byte* place = whole.data + rank_ * own.bytes();
             if (own.elements > 0 && own.data != place)
               std::memcpy(place, own.data, static_cast<std::size_t>(own.bytes()));
             gather_shares(call, whole, partitions_of(whole));
           });
  }

  void broadcast(Tensor whole, std::int64_t root) override {
    moving(TransferKind::broadcast, numbered(broadcast_call(whole, root, size_)),
           [&](const Call& call) { send_to_all(call, whole.data, whole.bytes(), root); });
  }

  void send(Tensor tensor, std::int64_t to) override {
    Call message = message_call(tensor, rank_, to, size_);
    message.sequence = sent_[static_cast<std::size_t>(to)]++;
    moving(TransferKind::send, message, [&](const Call& call) {
      transport_->send(call, tensor.data, tensor.bytes(), to);
      transport_->wait(call);
    });
  }

  void receive(Tensor tensor, std::int64_t from) override {
    Call message = message_call(tensor, from, rank_, size_);
    message.sequence = received_[static_cast<std::size_t>(from)]++;
    moving(TransferKind::receive, message, [&](const Call& call) {
      transport_->receive(tensor.data, tensor.bytes(), from);
      transport_->wait(call);
    });
  }

  void gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    const Call call = numbered(gather_call(own, all, size_));
    const auto bytes = static_cast<Bytes>(own.size());
    std::byte* place = all.data() + rank_ * bytes;
    if (!own.empty() && own.data() != place) std::memcpy(place, own.data(), own.size());
    meet(call, place, bytes, all.data());
  }

  void share(std::span<std::byte> data, std::int64_t root) override {
    send_to_all(numbered(share_call(data, root, size_)), data.data(), static_cast<Bytes>(data.size()), root);
  }

  void barrier() override { meet(numbered({.kind = Call::Kind::barrier}), nullptr, 0, nullptr); }

  std::unique_ptr<Communicator> split(std::int64_t color, std::int64_t key) override {
    struct Choice {
      std::int64_t color = 0, key = 0;
    };
    std::vector<Choice> choices(static_cast<std::size_t>(size_));
    const Choice own{.color = color, .key = key};
    choices[static_cast<std::size_t>(rank_)] = own;
    const Call call = numbered({.kind = Call::Kind::split});
    meet(call, reinterpret_cast<const std::byte*>(&own), sizeof own,
         reinterpret_cast<std::byte*>(choices.data()));

    std::vector<std::int64_t> ranks;  // of this group, in the order of the new one
    for (std::int64_t r = 0; r < size_; ++r) {
      if (choices[static_cast<std::size_t>(r)].color == color) ranks.push_back(r);
    }
    std::stable_sort(ranks.begin(), ranks.end(), [&](std::int64_t a, std::int64_t b) {
      return choices[static_cast<std::size_t>(a)].key < choices[static_cast<std::size_t>(b)].key;
    });
    return make_exchange_communicator(transport_->split(call, ranks));
  }

  void abort(const std::string& reason) override { transport_->abort(reason); }
  void set_activity(Activity activity) override { transport_->set_activity(std::move(activity)); }
  DataPlaneCapabilities capabilities() const override {
    return {.sums_in_rank_order = true, .runs_beside = transport_->runs_beside(), .moves_host_memory = true};
  }

 private:
  using Shares = std::vector<Share>;

  // A call that all ranks make.
  Call numbered(Call call) {
    call.sequence = sequence_++;
    return call;
  }

  // A call of the data plane.
  template <class Work>
  void moving(TransferKind kind, const Call& call, const Work& work) {
    enter(ledger_, kind, call);
    const Bytes before = transport_->sent_bytes();
    work(call);
    moved_.add(kind, transport_->sent_bytes() - before);
  }

  template <class Function>
  void for_others(Function function) const {
    for (std::int64_t i = 1; i < size_; ++i) function((rank_ + i) % size_);
  }

  template <class Function>
  Shares shares_of(Function share) const {
    Shares shares;
    shares.reserve(static_cast<std::size_t>(size_));
    for (std::int64_t r = 0; r < size_; ++r) shares.push_back(share(r));
    return shares;
  }

  Shares partitions_of(const Tensor& whole) const {
    const Elements partition = whole.elements / size_;
    return shares_of([&](std::int64_t r) { return Share{.first = r * partition, .count = partition}; });
  }

  void send_to_all(const Call& call, std::byte* data, Bytes bytes, std::int64_t root) {
    if (rank_ == root) {
      for_others([&](std::int64_t r) { transport_->send(call, data, bytes, r); });
    } else {
      transport_->receive(data, bytes, root);
    }
    transport_->wait(call);
  }

  // Everyone's `bytes` to everyone, by rank behind `all`.
  void meet(const Call& call, const std::byte* own, Bytes bytes, std::byte* all) {
    for_others([&](std::int64_t r) {
      transport_->receive(all + r * bytes, bytes, r);
      transport_->send(call, own, bytes, r);
    });
    transport_->wait(call);
  }

  // Round by round a piece of every share goes to its rank, so that the pieces of the own share, one of each
  // rank, fit the buffer. The first round has a message for every rank, if an empty one: each hears from
  // each.
  void reduce_own_share(const Call& call, const Tensor& whole, const Shares& shares, Reduction reduction) {
    if (size_ == 1) return;
    const Bytes element = program::bytes_of(whole.type);
    const Elements piece = std::max<Elements>(1, kExchangeBufferBytes / (size_ - 1) / element);
    Elements longest = 0;
    for (const Share& share : shares) longest = std::max(longest, share.count);
    const auto piece_at = [&](std::int64_t r, Elements done) {
      const Share& share = shares[static_cast<std::size_t>(r)];
      const Elements start = std::min(done, share.count);
      return Share{.first = share.first + start, .count = std::min(piece, share.count - start)};
    };
    const Elements own_piece = std::min(piece, shares[static_cast<std::size_t>(rank_)].count);
    const auto buffer_bytes = static_cast<std::size_t>(own_piece * element * (size_ - 1));
    if (buffer_.size() < buffer_bytes) buffer_.resize(buffer_bytes);

    for (Elements done = 0; done == 0 || done < longest; done += piece) {
      const Share own = piece_at(rank_, done);
      std::byte* place = whole.data + own.first * element;
      sources_.assign(static_cast<std::size_t>(size_), place);
      std::byte* next = buffer_.data();
      for_others([&](std::int64_t r) {
        const Share others = piece_at(r, done);
        if (own.count > 0 || done == 0) transport_->receive(next, own.count * element, r);
        if (others.count > 0 || done == 0) {
          transport_->send(call, whole.data + others.first * element, others.count * element, r);
        }
        sources_[static_cast<std::size_t>(r)] = next;
        next += own.count * element;
      });
      transport_->wait(call);
      reduce_in_order(sources_, std::array{place}, whole.type, own.count, reduction);
    }
  }

  void gather_shares(const Call& call, const Tensor& whole, const Shares& shares) {
    const Bytes element = program::bytes_of(whole.type);
    const Share& own = shares[static_cast<std::size_t>(rank_)];
    for_others([&](std::int64_t r) {
      const Share& other = shares[static_cast<std::size_t>(r)];
      transport_->receive(whole.data + other.first * element, other.count * element, r);
      transport_->send(call, whole.data + own.first * element, own.count * element, r);
    });
    transport_->wait(call);
  }

  std::unique_ptr<exchange::Transport> transport_;
  std::int64_t rank_;
  std::int64_t size_;
  std::uint64_t sequence_ = 0;
  std::vector<std::uint64_t> sent_, received_;  // messages so far, by the other rank
  Ledger ledger_;
  Moved moved_;
  std::vector<std::byte> buffer_;
  std::vector<const std::byte*> sources_;
};

}  // namespace

std::unique_ptr<Communicator> make_exchange_communicator(std::unique_ptr<exchange::Transport> transport) {
  return std::make_unique<ExchangeCommunicator>(std::move(transport));
}

}  // namespace zeroplan::executor
