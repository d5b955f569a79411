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
      : transport_(std::move(transport)), rank_(transport_->rank()), size_(transport_->size()) {}

  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return size_; }
  const Ledger& ledger() const override { return ledger_; }
  const Moved& moved() const override { return moved_; }

  void all_reduce(Tensor whole, Reduction reduction) override {
    const Call call = begin(all_reduce_call(whole, reduction));
    const Shares shares = shares_of([&](std::int64_t r) { return share_of(whole.elements, size_, r); });
    reduce_own_share(call, whole, shares, reduction);
    gather_shares(call, whole, shares);
    end(call);
  }

  void reduce_scatter(Tensor whole) override {
    const Call call = begin(reduce_scatter_call(whole, size_));
    reduce_own_share(call, whole, partitions_of(whole), Reduction::sum);
    end(call);
  }

  void all_gather(Tensor own, Tensor whole) override {
    const Call call = begin(all_gather_call(own, whole, rank_, size_));
    std::byte* place = whole.data + rank_ * own.bytes();
    if (own.elements > 0 && own.data != place)
      std::memcpy(place, own.data, static_cast<std::size_t>(own.bytes()));
    gather_shares(call, whole, partitions_of(whole));
    end(call);
  }

  void broadcast(Tensor whole, std::int64_t root) override {
    const Call call = begin(broadcast_call(whole, root, size_));
    if (rank_ == root) {
      for_others([&](std::int64_t r) { transport_->send(call, whole.data, whole.bytes(), r); });
    } else {
      transport_->receive(whole.data, whole.bytes(), root);
    }
    transport_->wait(call);
    end(call);
  }

  void barrier() override { meet(begin({.kind = Call::Kind::barrier}), nullptr, 0, nullptr); }

  std::unique_ptr<Communicator> split(std::int64_t color, std::int64_t key) override {
    struct Choice {
      std::int64_t color = 0, key = 0;
    };
    std::vector<Choice> choices(static_cast<std::size_t>(size_));
    const Choice own{.color = color, .key = key};
    choices[static_cast<std::size_t>(rank_)] = own;
    const Call call = begin({.kind = Call::Kind::split});
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
  bool runs_beside() const override { return transport_->runs_beside(); }

 private:
  using Shares = std::vector<Share>;

  Call begin(Call call) {
    call.sequence = sequence_++;
    if (call.kind != Call::Kind::barrier && call.kind != Call::Kind::split) enter(ledger_, call);
    sent_before_ = transport_->sent_bytes();
    return call;
  }
  // Of a call that moves data.
  void end(const Call& call) {
    moved_.add(collective_of(call.kind), transport_->sent_bytes() - sent_before_);
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
  Ledger ledger_;
  Moved moved_;
  Bytes sent_before_ = 0;  // the call
  std::vector<std::byte> buffer_;
  std::vector<const std::byte*> sources_;
};

}  // namespace

std::unique_ptr<Communicator> make_exchange_communicator(std::unique_ptr<exchange::Transport> transport) {
  return std::make_unique<ExchangeCommunicator>(std::move(transport));
}

}  // namespace zeroplan::executor
