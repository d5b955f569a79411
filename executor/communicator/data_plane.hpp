#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "executor/tensor.hpp"
#include "planner/instructions/table.hpp"

namespace zeroplan::executor {

class Device;
struct Watch;

enum class Reduction : std::uint8_t { sum, maximum };

// What moves data between ranks: the collectives of the instruction set, in its order, and messages between two ranks.
enum class TransferKind : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, send, receive };
inline constexpr std::size_t kTransferKinds = 6;
constexpr TransferKind kind_of(program::Op collective) {
  return static_cast<TransferKind>(program::collective_index(collective));
}
static_assert(kind_of(program::Op::all_reduce) == TransferKind::all_reduce);
static_assert(kind_of(program::kCollectiveOps.back()) == TransferKind::broadcast);
std::string_view name_of(TransferKind kind);

// One call of the data plane. All but send and receive are in place on whole vectors.
struct Transfer {
  TransferKind kind = TransferKind::all_reduce;
  Reduction reduction = Reduction::sum;  // of an all_reduce
  // The vector. Of a reduce_scatter, size() equal partitions: this rank's becomes the sum, the others are undefined
  // afterwards.
  Tensor whole{};
  Tensor own{};            // of an all_gather: one partition, which may be its place in `whole`
  std::int64_t other = 0;  // the root of a broadcast; whom a send is to or a receive is from
};

// Whether a data plane can do what not all can.
struct DataPlaneCapabilities {
  // Sums are formed in fp32 in the order of ranks 0, 1, 2 ..., so that they have the same bits on every rank and on every
  // data plane that says so. 16-bit types are added in fp32 and rounded once.
  bool sums_in_rank_order = false;
  // This group's calls may run beside those of other groups and beside kernels. They are still made one at a time.
  bool runs_beside = false;
  // It moves what the processors of the host reach, and so is for devices whose memory that is.
  bool moves_host_memory = false;
};

// One call as its rank saw it. Ranks of a group have the same collectives in the same order; of the messages, each pair
// of ranks has the same.
struct LedgerEntry {
  std::uint64_t sequence =
      0;  // from 0: of this group's collectives, or of the messages of one rank to another
  TransferKind kind = TransferKind::all_reduce;
  Elements elements = 0;  // of the whole vector
  program::DataType type = program::DataType::fp32;

  bool operator==(const LedgerEntry&) const = default;
};

// Totals by kind, and the last calls for messages. Bytes are of whole vectors, as the planner counts them.
struct Ledger {
  struct Total {
    TransferKind kind = TransferKind::all_reduce;
    std::int64_t calls = 0;
    Bytes bytes = 0;
  };
  std::vector<Total> totals;
  std::vector<LedgerEntry> last;  // up to 16
};

// Bytes that this rank itself carried between its memory and other ranks', by kind of call. They are counted by the code
// that sends, copies or reduces them, as it does so, and not from the arguments of a call (those are the ledger's).
// Ranks that are processes carry what they send; ranks that are threads what they read from another's memory or write
// into it. So each byte between two ranks is carried by one of them, and a group of n ranks carries, for a vector of S
// bytes,
//
//   S           for a send and its receive together
//   (n-1) S     for a reduce-scatter, an all-gather or a broadcast
//   2 (n-1) S   for an all-reduce
//
// whatever the implementation: per rank the same as a ring's.
class Moved {
 public:
  void add(TransferKind kind, Bytes bytes) { bytes_[static_cast<std::size_t>(kind)] += bytes; }
  Bytes of(TransferKind kind) const { return bytes_[static_cast<std::size_t>(kind)]; }

 private:
  std::array<Bytes, kTransferKinds> bytes_{};
};

// The same group of ranks, as far as their devices exchange memory. Calls are issued to a stream of this rank's device and
// are done in its order. Ranks that call different things and ranks that do not come end the run as on the control
// plane: the error comes out of the device, or out of the call where it is made at once.
class DataPlane {
 public:
  virtual ~DataPlane() = default;

  virtual std::int64_t rank() const = 0;
  virtual std::int64_t size() const = 0;
  virtual DataPlaneCapabilities capabilities() const = 0;
  // What moves the data, for whoever reads a measurement; empty where it is the launcher's communicator.
  virtual std::string text() const { return {}; }

  // `transfer`, and what it points to, must last until the stream is past it.
  virtual void enqueue(const Transfer& transfer, Device& device, program::Stream stream,
                       const Watch& watch) = 0;

  // Calls and what they were asked to do.
  virtual const Ledger& ledger() const = 0;
  // What then moved.
  virtual const Moved& moved() const = 0;
};

}  // namespace zeroplan::executor
