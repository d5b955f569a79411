#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "executor/communicator/moved.hpp"
#include "executor/tensor.hpp"
#include "planner/program/step_program.hpp"

namespace zeroplan::executor {

enum class Reduction : std::uint8_t { sum, maximum };

// One call as its rank saw it. Ranks of a group must have the same calls in the same order.
struct LedgerEntry {
  std::uint64_t sequence = 0;  // of this communicator, from 0
  program::Op collective = program::Op::all_reduce;
  Elements elements = 0;  // of the whole vector
  program::DataType type = program::DataType::fp32;

  bool operator==(const LedgerEntry&) const = default;
};

// Totals by collective, and the last calls for messages. Bytes are of whole vectors, as the planner counts
// them.
struct Ledger {
  struct Total {
    program::Op collective = program::Op::all_reduce;
    std::int64_t calls = 0;
    Bytes bytes = 0;
  };
  std::vector<Total> totals;
  std::vector<LedgerEntry> last;  // up to 16
};

// What a rank is doing, in words. Asked when a message needs it, from any thread.
using Activity = std::function<std::string()>;

// A group of ranks that a rank belongs to. Implementations: threads/ (ranks are threads of one process), mpi/
// (ranks are processes), nccl/ (GPUs). Collectives are in place on whole vectors, block until this rank's
// part is done, and add in the order of ranks 0, 1, 2 ... with fp32 sums, so that fp32 results have the same
// bits on every rank and in every implementation that says so. 16-bit types are added in fp32 and rounded
// once.
//
// Ranks that call different things, a rank that does not come within the timeout, or one that called abort()
// end every rank's call with a CommunicationError that says who, what and where; nothing hangs.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual std::int64_t rank() const = 0;
  virtual std::int64_t size() const = 0;

  virtual void all_reduce(Tensor whole, Reduction reduction) = 0;
  // `whole` is size() equal partitions; this rank's becomes the sum, the others are undefined afterwards.
  virtual void reduce_scatter(Tensor whole) = 0;
  // `own`: one partition, which may be its place in `whole`.
  virtual void all_gather(Tensor own, Tensor whole) = 0;
  virtual void broadcast(Tensor whole, std::int64_t root) = 0;
  virtual void barrier() = 0;

  // Ranks with the same color, ordered by key (then by rank here), form a new group. All ranks must call it.
  virtual std::unique_ptr<Communicator> split(std::int64_t color, std::int64_t key) = 0;

  // Ends every call of this and of all groups that stem from the same start, on every rank, with `reason`.
  virtual void abort(const std::string& reason) = 0;
  // For messages about this rank: an instruction's name. What it asks must last until the next call.
  virtual void set_activity(Activity activity) = 0;

  // Whether this group's calls may be made on another thread than those of other groups, beside them. They are still
  // made one at a time.
  virtual bool runs_beside() const { return false; }

  // Calls and what they were asked to do.
  virtual const Ledger& ledger() const = 0;
  // What then moved.
  virtual const Moved& moved() const = 0;
};

}  // namespace zeroplan::executor
