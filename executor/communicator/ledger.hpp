#pragma once

#include <span>
#include <string>

#include "executor/communicator/communicator.hpp"

// What every implementation of Communicator keeps about its calls: their checks, their text, the ledger.
namespace zeroplan::executor {

// Everything that must be the same on every rank that takes part in a call for it to make sense.
struct Call {
  // The numbers go over the wire; mpi/ has three bits for them.
  enum class Kind : std::uint8_t {
    all_reduce,
    reduce_scatter,
    all_gather,
    broadcast,
    barrier,
    split,
    message
  };

  Kind kind = Kind::barrier;
  Reduction reduction = Reduction::sum;  // all_reduce
  program::DataType type = program::DataType::fp32;
  Elements elements = 0;  // of the whole vector
  std::int64_t root = 0;  // broadcast; of a message, the rank that sends it
  // From 0: of the communicator's calls that all ranks make, of either plane; of the messages of one rank to another.
  std::uint64_t sequence = 0;

  bool operator==(const Call&) const = default;
};

// As messages show it: "call 17, all_reduce (maximum) of 1024 fp32". Negative elements or root: not known,
// left out.
std::string text_of(const Call& call);

// Checked descriptions of calls; the communicator fills in `sequence`. They throw std::logic_error where this
// rank's own arguments are wrong: a vector that is not size() equal partitions, a type that has no sum
// (int32, uint8), a root, a partner or a partition that is not there, an `own` that is partly inside `whole` but not at
// its place.
Call all_reduce_call(const Tensor& whole, Reduction reduction);
Call reduce_scatter_call(const Tensor& whole, std::int64_t size);
Call all_gather_call(const Tensor& own, const Tensor& whole, std::int64_t rank, std::int64_t size);
Call broadcast_call(const Tensor& whole, std::int64_t root, std::int64_t size);

// Of a message that rank `from` sends to rank `to`.
Call message_call(const Tensor& tensor, std::int64_t from, std::int64_t to, std::int64_t size);
// Of a transfer by rank `rank` of `size`: one of the above.
Call call_of(const Transfer& transfer, std::int64_t rank, std::int64_t size);
// Of the control plane. They are all_gather and broadcast of bytes, and enter no ledger.
Call gather_call(std::span<const std::byte> own, std::span<std::byte> all, std::int64_t size);
Call share_call(std::span<std::byte> data, std::int64_t root, std::int64_t size);

// Enters a call that moves data: adds to its total (whole vectors: elements x type size) and to the last
// calls.
void enter(Ledger& ledger, TransferKind kind, const Call& call);

// What a rank carries of a call (Moved) where it takes its part of a ring's work.
Bytes carried_bytes(TransferKind kind, const Call& call, std::int64_t rank, std::int64_t size);

// Rank `rank`'s share of a vector of any length: shares are in the order of ranks, differ by at most
// kShareAlignment elements and may be empty.
struct Share {
  Elements first = 0, count = 0;
};
inline constexpr Elements kShareAlignment =
    32;  // no two ranks write into one 64-byte line of an aligned vector
Share share_of(Elements elements, std::int64_t size, std::int64_t rank);

}  // namespace zeroplan::executor
