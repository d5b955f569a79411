#pragma once

#include <memory>

#include "executor/communicator/communicator.hpp"
#include "executor/communicator/exchange/transport.hpp"

namespace zeroplan::executor {

// Memory that such a communicator holds beside its caller's, at most.
inline constexpr Bytes kExchangeBufferBytes = 4 * kMiB;

// A communicator of ranks that are processes, over the messages of `transport`.
//
// Ranks exchange partitions directly and add them in rank order, so results have the bits that threads/
// gives, and each rank sends (n-1)/n of the vector for a reduce_scatter or all_gather and twice that for an
// all_reduce. The root of a broadcast sends the vector to each of the others. Groups are limited to some
// hundreds of ranks by the messages from each to each.
std::unique_ptr<Communicator> make_exchange_communicator(std::unique_ptr<exchange::Transport> transport);

}  // namespace zeroplan::executor
