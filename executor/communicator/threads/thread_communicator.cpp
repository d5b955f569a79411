#include "executor/communicator/threads/thread_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "executor/communicator/reduce.hpp"
#include "executor/communicator/threads/group.hpp"

namespace zeroplan::executor {

namespace threads {

namespace {

// Returns how many bytes it copied.
Bytes copy_bytes(std::byte* to, const std::byte* from, Bytes bytes) {
  if (bytes == 0 || to == from) return 0;
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
  return bytes;
}

// Makes the groups of a split and leaves each member's in its slot. noexcept: the other ranks wait for it in
// finish(), so running out of memory here ends the process rather than hang it.
void make_children(ThreadGroup& group) noexcept {
  std::map<std::int64_t, std::vector<std::int64_t>> ranks_by_color;
  for (std::int64_t r = 0; r < group.size(); ++r) ranks_by_color[group.slot(r).color].push_back(r);
  for (auto& [color, ranks] : ranks_by_color) {
    std::stable_sort(ranks.begin(), ranks.end(),
                     [&](std::int64_t a, std::int64_t b) { return group.slot(a).key < group.slot(b).key; });
    std::vector<std::int64_t> members;
    for (const std::int64_t r : ranks) members.push_back(group.member(r));
    const auto child = std::make_shared<ThreadGroup>(group.run(), std::move(members));
    group.run()->wake_when_stopped(child);
    for (const std::int64_t r : ranks) group.slot(r).child = child;
  }
}

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, std::int64_t rank)
      : group_(std::move(group)),
        rank_(rank),
        sent_(static_cast<std::size_t>(group_->size())),
        received_(static_cast<std::size_t>(group_->size())) {}

  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return group_->size(); }
  const Ledger& ledger() const override { return ledger_; }
  const Moved& moved() const override { return moved_; }

  void all_reduce(Tensor whole, Reduction reduction) override {
    begin(TransferKind::all_reduce, all_reduce_call(whole, reduction), whole.data);
    moved_.add(TransferKind::all_reduce,
               reduce_share(whole.type, share_of(whole.elements, size(), rank_), reduction, true));
    group_->finish(rank_);
  }

  void reduce_scatter(Tensor whole) override {
    begin(TransferKind::reduce_scatter, reduce_scatter_call(whole, size()), whole.data);
    const Elements partition = whole.elements / size();
    const Share own{.first = rank_ * partition, .count = partition};
    moved_.add(TransferKind::reduce_scatter, reduce_share(whole.type, own, Reduction::sum, false));
    group_->finish(rank_);
  }

  void all_gather(Tensor own, Tensor whole) override {
    begin(TransferKind::all_gather, all_gather_call(own, whole, rank_, size()), whole.data, own.data);
    moved_.add(TransferKind::all_gather, copy_all(whole.data, own.bytes()));
    group_->finish(rank_);
  }

  void broadcast(Tensor whole, std::int64_t root) override {
    begin(TransferKind::broadcast, broadcast_call(whole, root, size()), whole.data);
    moved_.add(TransferKind::broadcast, copy_bytes(whole.data, group_->slot(root).whole, whole.bytes()));
    group_->finish(rank_);
  }

  void send(Tensor tensor, std::int64_t to) override {
    Call call = message_call(tensor, rank_, to, size());
    call.sequence = sent_[static_cast<std::size_t>(to)]++;
    enter(ledger_, TransferKind::send, call);
    group_->give(rank_, to, call, tensor.data);
  }

  void receive(Tensor tensor, std::int64_t from) override {
    Call call = message_call(tensor, from, rank_, size());
    call.sequence = received_[static_cast<std::size_t>(from)]++;
    enter(ledger_, TransferKind::receive, call);
    moved_.add(TransferKind::receive, group_->take(rank_, from, call, tensor.data));
  }

  void gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    begin(gather_call(own, all, size()), all.data(), own.data());
    copy_all(all.data(), static_cast<Bytes>(own.size()));
    group_->finish(rank_);
  }

  void share(std::span<std::byte> data, std::int64_t root) override {
    begin(share_call(data, root, size()), data.data());
    copy_bytes(data.data(), group_->slot(root).whole, static_cast<Bytes>(data.size()));
    group_->finish(rank_);
  }

  void barrier() override {
    begin({.kind = Call::Kind::barrier});
    group_->finish(rank_);
  }

  std::unique_ptr<Communicator> split(std::int64_t color, std::int64_t key) override {
    Slot& mine = group_->slot(rank_);
    mine.color = color;
    mine.key = key;
    begin({.kind = Call::Kind::split});
    if (rank_ == 0) make_children(*group_);
    group_->finish(rank_);
    std::int64_t rank = 0;
    for (std::int64_t r = 0; r < size(); ++r) {
      const Slot& other = group_->slot(r);
      if (other.color == color && std::tie(other.key, r) < std::tie(key, rank_)) ++rank;
    }
    auto child = std::make_unique<ThreadCommunicator>(std::move(mine.child), rank);
    group_->finish(rank_);  // colors and keys were read
    return child;
  }

  void abort(const std::string& reason) override {
    const std::int64_t origin = group_->member(rank_);
    group_->run()->stop(origin, fmt::format("rank {}: {}", origin, reason));
  }

  DataPlaneCapabilities capabilities() const override {
    return {.sums_in_rank_order = true, .runs_beside = true, .moves_host_memory = true};
  }
  void set_activity(Activity activity) override {
    group_->run()->set_activity(group_->member(rank_), std::move(activity));
  }

 private:
  // A call that moves data.
  void begin(TransferKind kind, Call call, std::byte* whole, const std::byte* own = nullptr) {
    call.sequence = sequence_;
    enter(ledger_, kind, call);
    begin(call, whole, own);
  }

  void begin(Call call, std::byte* whole = nullptr, const std::byte* own = nullptr) {
    // Before the slot is touched: ranks that are out of step may still read it.
    if (group_->run()->stopped()) group_->run()->throw_reason();
    call.sequence = sequence_++;
    Slot& mine = group_->slot(rank_);
    mine.call = call;
    mine.whole = whole;
    mine.own = own;
    group_->begin(rank_);
  }

  // Every rank starts with its own, so that they do not all read one rank's memory at a time. Returns the bytes that
  // were read from other ranks' memory.
  Bytes copy_all(std::byte* all, Bytes part) {
    Bytes copied = 0;
    for (std::int64_t i = 0; i < size(); ++i) {
      const std::int64_t from = (rank_ + i) % size();
      const Bytes bytes = copy_bytes(all + from * part, group_->slot(from).own, part);
      if (from != rank_) copied += bytes;
    }
    return copied;
  }

  // To this rank's memory, or to everyone's: a share is written by its rank only. Returns the bytes that were
  // read from other ranks' memory and written into it.
  Bytes reduce_share(program::DataType type, Share share, Reduction reduction, bool to_all) {
    if (share.count == 0) return 0;
    const Bytes offset = share.first * program::bytes_of(type);
    places_.clear();
    for (std::int64_t r = 0; r < size(); ++r) places_.push_back(group_->slot(r).whole + offset);
    sources_.assign(places_.begin(), places_.end());
    const std::span<std::byte* const> places = places_;
    const Elements reduced =
        reduce_in_order(sources_, to_all ? places : places.subspan(static_cast<std::size_t>(rank_), 1), type,
                        share.count, reduction);
    return (to_all ? 2 : 1) * (size() - 1) * reduced * program::bytes_of(type);
  }

  std::shared_ptr<ThreadGroup> group_;
  std::int64_t rank_;
  std::uint64_t sequence_ = 0;
  std::vector<std::uint64_t> sent_, received_;  // messages so far, by the other rank
  Ledger ledger_;
  Moved moved_;
  std::vector<std::byte*> places_;  // reused, so that a call allocates nothing
  std::vector<const std::byte*> sources_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> communicators_of(const std::shared_ptr<SharedRun>& run) {
  std::vector<std::int64_t> members;
  for (std::int64_t r = 0; r < run->ranks(); ++r) members.push_back(r);
  const auto group = std::make_shared<ThreadGroup>(run, std::move(members));
  run->wake_when_stopped(group);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (std::int64_t r = 0; r < run->ranks(); ++r) {
    communicators.push_back(std::make_unique<ThreadCommunicator>(group, r));
  }
  return communicators;
}

}  // namespace threads

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(std::int64_t ranks,
                                                                     const ThreadOptions& options) {
  if (ranks < 1) throw std::logic_error(fmt::format("communicators for {} ranks", ranks));
  return threads::communicators_of(std::make_shared<threads::SharedRun>(ranks, options));
}

}  // namespace zeroplan::executor
