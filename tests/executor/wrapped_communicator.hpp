#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "executor/communicator/communicator.hpp"

namespace zeroplan::executor::test {

class WrappedCommunicator;

// What happens around the collectives of a communicator and of the groups that are split off it.
struct Around {
  using Hook = std::function<void(const WrappedCommunicator& group, program::Op op, const Tensor& whole)>;
  Hook before{}, after{};
};

class WrappedCommunicator : public Communicator {
 public:
  // Which split of the start made a group (a Rank's first is the data-parallel one, its second the tensor-parallel
  // one), and its color there.
  using Name = std::pair<int, std::int64_t>;

  WrappedCommunicator(Communicator& seen, Around around) : seen_(seen), around_(std::move(around)) {}
  WrappedCommunicator(std::unique_ptr<Communicator> owned, Around around, Name name)
      : owned_(std::move(owned)), seen_(*owned_), around_(std::move(around)), name_(name) {}

  const Name& name() const { return name_; }

  std::int64_t rank() const override { return seen_.rank(); }
  std::int64_t size() const override { return seen_.size(); }
  void all_reduce(Tensor whole, Reduction reduction) override {
    around(program::Op::all_reduce, whole, [&] { seen_.all_reduce(whole, reduction); });
  }
  void reduce_scatter(Tensor whole) override {
    around(program::Op::reduce_scatter, whole, [&] { seen_.reduce_scatter(whole); });
  }
  void all_gather(Tensor own, Tensor whole) override {
    around(program::Op::all_gather, whole, [&] { seen_.all_gather(own, whole); });
  }
  void broadcast(Tensor whole, std::int64_t root) override {
    around(program::Op::broadcast, whole, [&] { seen_.broadcast(whole, root); });
  }
  void send(Tensor tensor, std::int64_t to) override { seen_.send(tensor, to); }
  void receive(Tensor tensor, std::int64_t from) override { seen_.receive(tensor, from); }
  void gather(std::span<const std::byte> own, std::span<std::byte> all) override { seen_.gather(own, all); }
  void share(std::span<std::byte> data, std::int64_t root) override { seen_.share(data, root); }
  void barrier() override { seen_.barrier(); }
  std::unique_ptr<Communicator> split(std::int64_t color, std::int64_t key) override {
    return std::make_unique<WrappedCommunicator>(seen_.split(color, key), around_, Name{splits_++, color});
  }
  void abort(const std::string& reason) override { seen_.abort(reason); }
  void set_activity(Activity activity) override { seen_.set_activity(std::move(activity)); }
  DataPlaneCapabilities capabilities() const override { return seen_.capabilities(); }
  const Ledger& ledger() const override { return seen_.ledger(); }
  const Moved& moved() const override { return seen_.moved(); }

 private:
  template <class Call>
  void around(program::Op op, const Tensor& whole, const Call& call) {
    if (around_.before) around_.before(*this, op, whole);
    call();
    if (around_.after) around_.after(*this, op, whole);
  }

  std::unique_ptr<Communicator> owned_;
  Communicator& seen_;
  Around around_;
  Name name_{-1, 0};
  int splits_ = 0;
};

}  // namespace zeroplan::executor::test
