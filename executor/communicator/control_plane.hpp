#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace zeroplan::executor {

class Communicator;

// What a rank is doing, in words. Asked when a message needs it, from any thread.
using Activity = std::function<std::string()>;

// A group of ranks that a rank belongs to, as far as the ranks only have to agree: they exchange a few bytes of the
// host (settings, hashes, times), form groups and end the run together. It needs no device. What moves between devices
// is on the data plane (data_plane.hpp), which is made with the help of this one: a library that wants an id which all
// ranks know, as NCCL does, gets it from share().
//
// All ranks of the group make the same calls in the same order, and a call blocks until this rank's part of it is done.
// Ranks that call different things, a rank that does not come within the timeout, or one that called abort() end every
// rank's call with a CommunicationError that says who, what and where; nothing hangs.
class ControlPlane {
 public:
  virtual ~ControlPlane() = default;

  virtual std::int64_t rank() const = 0;
  virtual std::int64_t size() const = 0;

  // Every rank's `own`, which are equally long, one behind another in the order of ranks. `own` may be its place in
  // `all`. Throws std::logic_error where `all` has not size() times as many bytes.
  virtual void gather(std::span<const std::byte> own, std::span<std::byte> all) = 0;
  // What rank `root` has in `data` is then in every rank's, which are equally long.
  virtual void share(std::span<std::byte> data, std::int64_t root) = 0;
  virtual void barrier() = 0;

  // Ranks with the same color, ordered by key (then by rank here), form a new group. All ranks must call it.
  virtual std::unique_ptr<Communicator> split(std::int64_t color, std::int64_t key) = 0;

  // Ends every call of this and of all groups that stem from the same start, on every rank, with `reason`.
  virtual void abort(const std::string& reason) = 0;
  // For messages about this rank: an instruction's name. What it asks must last until the next call.
  virtual void set_activity(Activity activity) = 0;
};

// Every rank's values, which are equally many on all ranks, one rank behind another.
template <class Value>
std::vector<Value> gathered(ControlPlane& ranks, std::span<const Value> own) {
  static_assert(std::is_trivially_copyable_v<Value>);
  std::vector<Value> all(own.size() * static_cast<std::size_t>(ranks.size()));
  ranks.gather(std::as_bytes(own), std::as_writable_bytes(std::span(all)));
  return all;
}
template <class Value>
std::vector<Value> gathered(ControlPlane& ranks, const Value& own) {
  return gathered(ranks, std::span<const Value>(&own, 1));
}

}  // namespace zeroplan::executor
