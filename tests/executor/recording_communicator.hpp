#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/executor/wrapped_communicator.hpp"

namespace zeroplan::executor::test {

// Every call of every rank: what ranks are compared by without asking the communicator, which compares them
// too.
class Recording {
 public:
  using Group = WrappedCommunicator::Name;
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

// For TrainingOptions::world.
inline std::function<std::unique_ptr<Communicator>(Communicator&)> recorded_in(Recording& recording) {
  return [&recording](Communicator& world) {
    return std::make_unique<WrappedCommunicator>(
        world,
        Around{.before = [&recording](const WrappedCommunicator& group, program::Op op, const Tensor& whole) {
          recording.add(group.name(), group.rank(),
                        {.kind = kind_of(op), .elements = whole.elements, .type = whole.type});
        }});
  };
}

}  // namespace zeroplan::executor::test
