#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "executor/communicator/communicator.hpp"

namespace zeroplan::executor::test {

// Every call of every rank: what ranks are compared by without asking the communicator, which compares them
// too.
class Recording {
 public:
  // Which split of the world made a group (a Rank's first is the data-parallel one, its second the
  // tensor-parallel one), and its color there.
  using Group = std::pair<int, std::int64_t>;
  using Calls = std::vector<LedgerEntry>;

  void add(Group group, std::int64_t rank, const LedgerEntry& call) {
    const std::scoped_lock lock(mutex_);
    Calls& calls = groups_[group][rank];
    calls.push_back(call);
    calls.back().sequence = calls.size() - 1;
  }

  // By group, then by rank in it.
  const std::map<Group, std::map<std::int64_t, Calls>>& groups() const { return groups_; }

 private:
  std::mutex mutex_;
  std::map<Group, std::map<std::int64_t, Calls>> groups_;
};

class RecordingCommunicator : public Communicator {
 public:
  RecordingCommunicator(Communicator& seen, Recording& recording) : recording_(recording), seen_(seen) {}

  std::int64_t rank() const override { return seen_.rank(); }
  std::int64_t size() const override { return seen_.size(); }
  void all_reduce(Tensor whole, Reduction reduction) override {
    record(program::Op::all_reduce, whole);
    seen_.all_reduce(whole, reduction);
  }
  void reduce_scatter(Tensor whole) override {
    record(program::Op::reduce_scatter, whole);
    seen_.reduce_scatter(whole);
  }
  void all_gather(Tensor own, Tensor whole) override {
    record(program::Op::all_gather, whole);
    seen_.all_gather(own, whole);
  }
  void broadcast(Tensor whole, std::int64_t root) override {
    record(program::Op::broadcast, whole);
    seen_.broadcast(whole, root);
  }
  void barrier() override { seen_.barrier(); }
  std::unique_ptr<Communicator> split(std::int64_t color, std::int64_t key) override {
    return std::make_unique<RecordingCommunicator>(seen_.split(color, key), recording_,
                                                   Recording::Group{splits_++, color});
  }
  void abort(const std::string& reason) override { seen_.abort(reason); }
  void set_activity(Activity activity) override { seen_.set_activity(std::move(activity)); }
  bool runs_beside() const override { return seen_.runs_beside(); }
  const Ledger& ledger() const override { return seen_.ledger(); }
  const Moved& moved() const override { return seen_.moved(); }

  RecordingCommunicator(std::unique_ptr<Communicator> group, Recording& recording, Recording::Group name)
      : recording_(recording), owned_(std::move(group)), seen_(*owned_), name_(name) {}

 private:
  void record(program::Op op, const Tensor& whole) {
    recording_.add(name_, rank(), {.collective = op, .elements = whole.elements, .type = whole.type});
  }

  Recording& recording_;
  std::unique_ptr<Communicator> owned_;
  Communicator& seen_;
  Recording::Group name_{-1, 0};
  int splits_ = 0;
};

// For TrainingOptions::world.
inline std::function<std::unique_ptr<Communicator>(Communicator&)> recorded_in(Recording& recording) {
  return
      [&recording](Communicator& world) { return std::make_unique<RecordingCommunicator>(world, recording); };
}

}  // namespace zeroplan::executor::test
