#include "executor/communicator/mpi/mpi_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <numeric>
#include <utility>
#include <vector>

#include "executor/communicator/ledger.hpp"
#include "executor/communicator/mpi/mpi_calls.hpp"
#include "executor/communicator/reduce.hpp"
#include "planner/error.hpp"

namespace zeroplan::executor {

namespace {

// What all groups of this process share.
struct Session {
  explicit Session(const MpiOptions& mpi_options) : options(mpi_options) {}

  MpiOptions options;
  mpi::ActivityBoard activities;
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<Session> session, MPI_Comm handle, std::vector<int> members)
      : session_(std::move(session)),
        handle_(handle),
        members_(std::move(members)),
        exchange_(handle, members_, session_->activities, session_->options) {
    int rank = 0;
    MPI_Comm_rank(handle, &rank);
    rank_ = rank;
  }

  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(members_.size()); }
  const Ledger& ledger() const override { return ledger_; }

  void all_reduce(Tensor whole, Reduction reduction) override {
    const Call call = begin(all_reduce_call(whole, reduction));
    const Shares shares = shares_of([&](std::int64_t r) { return share_of(whole.elements, size(), r); });
    reduce_own_share(call, whole, shares, reduction);
    gather_shares(call, whole, shares);
  }

  void reduce_scatter(Tensor whole) override {
    const Call call = begin(reduce_scatter_call(whole, size()));
    reduce_own_share(call, whole, partitions_of(whole), Reduction::sum);
  }

  void all_gather(Tensor own, Tensor whole) override {
    const Call call = begin(all_gather_call(own, whole, rank_, size()));
    std::byte* place = whole.data + rank_ * own.bytes();
    if (own.elements > 0 && own.data != place)
      std::memcpy(place, own.data, static_cast<std::size_t>(own.bytes()));
    gather_shares(call, whole, partitions_of(whole));
  }

  void broadcast(Tensor whole, std::int64_t root) override {
    const Call call = begin(broadcast_call(whole, root, size()));
    if (rank_ == root) {
      for_others([&](std::int64_t r) { exchange_.send(call, whole.data, whole.bytes(), r); });
    } else {
      exchange_.receive(whole.data, whole.bytes(), root);
    }
    exchange_.wait(call);
  }

  void barrier() override { meet(begin({.kind = Call::Kind::barrier}), nullptr, 0, nullptr); }

  std::unique_ptr<Communicator> split(std::int64_t color, std::int64_t key) override {
    struct Choice {
      std::int64_t color = 0, key = 0;
    };
    std::vector<Choice> choices(members_.size());
    const Choice own{.color = color, .key = key};
    choices[static_cast<std::size_t>(rank_)] = own;
    meet(begin({.kind = Call::Kind::split}), reinterpret_cast<const std::byte*>(&own), sizeof own,
         reinterpret_cast<std::byte*>(choices.data()));

    std::vector<int> ranks;  // of this group, in the order of the new one
    for (std::size_t r = 0; r < choices.size(); ++r) {
      if (choices[r].color == color) ranks.push_back(static_cast<int>(r));
    }
    std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
      return choices[static_cast<std::size_t>(a)].key < choices[static_cast<std::size_t>(b)].key;
    });
    std::vector<int> members;
    members.reserve(ranks.size());
    for (const int r : ranks) members.push_back(members_[static_cast<std::size_t>(r)]);
    // MPI wants small colors and keys; everyone is here, so this does not wait for a rank that is lost.
    const auto place = std::find(ranks.begin(), ranks.end(), static_cast<int>(rank_)) - ranks.begin();
    MPI_Comm child = MPI_COMM_NULL;
    const int smallest = *std::min_element(ranks.begin(), ranks.end());
    mpi::check(MPI_Comm_split(handle_.get(), smallest, narrow<int>(place), &child), "MPI_Comm_split");
    return std::make_unique<MpiCommunicator>(session_, child, std::move(members));
  }

  void abort(const std::string& reason) override {
    mpi::end_all(fmt::format("rank {}: {}", world_rank(), reason));
  }
  void set_activity(std::string activity) override { session_->activities.write(activity); }

 private:
  using Shares = std::vector<Share>;

  int world_rank() const { return members_[static_cast<std::size_t>(rank_)]; }

  Call begin(Call call) {
    call.sequence = sequence_++;
    if (call.kind != Call::Kind::barrier && call.kind != Call::Kind::split) enter(ledger_, call);
    return call;
  }

  template <class Function>
  void for_others(Function function) const {
    for (std::int64_t i = 1; i < size(); ++i) function((rank_ + i) % size());
  }

  template <class Function>
  Shares shares_of(Function share) const {
    Shares shares;
    shares.reserve(members_.size());
    for (std::int64_t r = 0; r < size(); ++r) shares.push_back(share(r));
    return shares;
  }

  Shares partitions_of(const Tensor& whole) const {
    const Elements partition = whole.elements / size();
    return shares_of([&](std::int64_t r) { return Share{.first = r * partition, .count = partition}; });
  }

  // Everyone's `bytes` to everyone, by rank behind `all`.
  void meet(const Call& call, const std::byte* own, Bytes bytes, std::byte* all) {
    for_others([&](std::int64_t r) {
      exchange_.receive(all + r * bytes, bytes, r);
      exchange_.send(call, own, bytes, r);
    });
    exchange_.wait(call);
  }

  // Round by round a piece of every share goes to its rank, so that the pieces of the own share, one of each
  // rank, fit the buffer. The first round has a message for every rank, if an empty one: each hears from
  // each.
  void reduce_own_share(const Call& call, const Tensor& whole, const Shares& shares, Reduction reduction) {
    if (size() == 1) return;
    const Bytes element = program::bytes_of(whole.type);
    const Elements piece = std::max<Elements>(1, kMpiBufferBytes / (size() - 1) / element);
    Elements longest = 0;
    for (const Share& share : shares) longest = std::max(longest, share.count);
    const auto piece_at = [&](std::int64_t r, Elements done) {
      const Share& share = shares[static_cast<std::size_t>(r)];
      const Elements start = std::min(done, share.count);
      return Share{.first = share.first + start, .count = std::min(piece, share.count - start)};
    };
    const Elements own_piece = std::min(piece, shares[static_cast<std::size_t>(rank_)].count);
    const auto buffer_bytes = static_cast<std::size_t>(own_piece * element * (size() - 1));
    if (buffer_.size() < buffer_bytes) buffer_.resize(buffer_bytes);

    for (Elements done = 0; done == 0 || done < longest; done += piece) {
      const Share own = piece_at(rank_, done);
      std::byte* place = whole.data + own.first * element;
      sources_.assign(members_.size(), place);
      std::byte* next = buffer_.data();
      for_others([&](std::int64_t r) {
        const Share others = piece_at(r, done);
        if (own.count > 0 || done == 0) exchange_.receive(next, own.count * element, r);
        if (others.count > 0 || done == 0) {
          exchange_.send(call, whole.data + others.first * element, others.count * element, r);
        }
        sources_[static_cast<std::size_t>(r)] = next;
        next += own.count * element;
      });
      exchange_.wait(call);
      reduce_in_order(sources_, std::array{place}, whole.type, own.count, reduction);
    }
  }

  void gather_shares(const Call& call, const Tensor& whole, const Shares& shares) {
    const Bytes element = program::bytes_of(whole.type);
    const Share& own = shares[static_cast<std::size_t>(rank_)];
    for_others([&](std::int64_t r) {
      const Share& other = shares[static_cast<std::size_t>(r)];
      exchange_.receive(whole.data + other.first * element, other.count * element, r);
      exchange_.send(call, whole.data + own.first * element, own.count * element, r);
    });
    exchange_.wait(call);
  }

  std::shared_ptr<Session> session_;
  mpi::CommunicatorHandle handle_;
  std::vector<int> members_;  // ranks of MPI_COMM_WORLD
  mpi::Exchange exchange_;
  std::int64_t rank_ = 0;
  std::uint64_t sequence_ = 0;
  Ledger ledger_;
  std::vector<std::byte> buffer_;
  std::vector<const std::byte*> sources_;
};

}  // namespace

void run_mpi_rank(int* argc, char*** argv, const MpiOptions& options,
                  const std::function<void(Communicator&)>& rank_main) {
  int provided = 0;
  mpi::check(MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_SERIALIZED) mpi::end_all("this MPI cannot be called from changing threads");
  int size = 0, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  {
    const auto session = std::make_shared<Session>(options);
    std::vector<int> members(static_cast<std::size_t>(size));
    std::iota(members.begin(), members.end(), 0);
    MPI_Comm handle = MPI_COMM_NULL;
    mpi::check(MPI_Comm_dup(MPI_COMM_WORLD, &handle), "MPI_Comm_dup");
    MpiCommunicator world(session, handle, std::move(members));
    // Caught before the handles above are freed: MPI frees them together with the other ranks, which may be
    // waiting.
    try {
      rank_main(world);
    } catch (const ConfigurationError& error) {
      mpi::end_all(error.what(), mpi::kExitBadInput);
    } catch (const std::exception& error) {
      mpi::end_all(fmt::format("rank {}: {}", rank, error.what()));
    } catch (...) {
      mpi::end_all(fmt::format("rank {}: an exception that is no std::exception", rank));
    }
  }
  MPI_Finalize();
}

}  // namespace zeroplan::executor
