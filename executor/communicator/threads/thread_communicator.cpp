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
      : group_(std::move(group)), rank_(rank) {}

  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return group_->size(); }
  const Ledger& ledger() const override { return ledger_; }
  const Moved& moved() const override { return moved_; }

  void all_reduce(Tensor whole, Reduction reduction) override {
    begin(all_reduce_call(whole, reduction), whole.data, nullptr);
    moved_.add(program::Op::all_reduce,
               reduce_share(whole.type, share_of(whole.elements, size(), rank_), reduction, true));
    group_->finish(rank_);
  }

  void reduce_scatter(Tensor whole) override {
    begin(reduce_scatter_call(whole, size()), whole.data, nullptr);
    const Elements partition = whole.elements / size();
    const Share own{.first = rank_ * partition, .count = partition};
    moved_.add(program::Op::reduce_scatter, reduce_share(whole.type, own, Reduction::sum, false));
    group_->finish(rank_);
  }

  void all_gather(Tensor own, Tensor whole) override {
    begin(all_gather_call(own, whole, rank_, size()), whole.data, own.data);
    // Every rank starts with its own, so that they do not all read one rank's memory at a time.
    for (std::int64_t i = 0; i < size(); ++i) {
      const std::int64_t from = (rank_ + i) % size();
      const Bytes copied = copy_bytes(whole.data + from * own.bytes(), group_->slot(from).own, own.bytes());
      if (from != rank_) moved_.add(program::Op::all_gather, copied);
    }
    group_->finish(rank_);
  }

  void broadcast(Tensor whole, std::int64_t root) override {
    begin(broadcast_call(whole, root, size()), whole.data, nullptr);
    moved_.add(program::Op::broadcast, copy_bytes(whole.data, group_->slot(root).whole, whole.bytes()));
    group_->finish(rank_);
  }

  void barrier() override {
    begin({.kind = Call::Kind::barrier}, nullptr, nullptr);
    group_->finish(rank_);
  }

  std::unique_ptr<Communicator> split(std::int64_t color, std::int64_t key) override {
    Slot& mine = group_->slot(rank_);
    mine.color = color;
    mine.key = key;
    begin({.kind = Call::Kind::split}, nullptr, nullptr);
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

  bool runs_beside() const override { return true; }
  void set_activity(Activity activity) override {
    group_->run()->set_activity(group_->member(rank_), std::move(activity));
  }

 private:
  void begin(Call call, std::byte* whole, const std::byte* own) {
    // Before the slot is touched: ranks that are out of step may still read it.
    if (group_->run()->stopped()) group_->run()->throw_reason();
    call.sequence = sequence_++;
    if (call.kind != Call::Kind::barrier && call.kind != Call::Kind::split) enter(ledger_, call);
    Slot& mine = group_->slot(rank_);
    mine.call = call;
    mine.whole = whole;
    mine.own = own;
    group_->begin(rank_);
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
