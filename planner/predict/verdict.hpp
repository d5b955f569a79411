#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/units.hpp"

namespace zeroplan::describe {
struct Cluster;
}

// Whether a plan fits, as far as that is known.
namespace zeroplan::predict {

struct Prediction;

// `fits_tightly`: with less than 5 % of the capacity left, or only if the engine's host memory stays below
// its worst: what a runtime and an allocator do is not known that well. `cannot_say`: nothing that is known
// speaks against the plan, and something that it needs is not known; a lower bound proves a no, never a yes.
enum class Verdict { fits, fits_tightly, does_not_fit, cannot_say };
std::string_view name_of(Verdict verdict);

inline constexpr std::string_view kShape = "shape";
inline constexpr std::string_view kHostMemory = "host_memory";

// Something that a yes would need and that nobody gave.
struct Missing {
  std::string key;       // kShape or kHostMemory
  std::string sentence;  // what is not known, and what depends on it; without a full stop
  std::string how;       // how to give it; without a full stop
};

// Bytes that a plan needs of a device and of a node's host memory, and what there is.
struct MemoryNeed {
  Bytes overheads = 0;                 // what the program does not acquire
  Bytes peak = 0;                      // of a device, overheads included
  Bytes capacity = 0;                  // what a program can use on the device, less the reserve
  Bytes host_states = 0;               // of a rank: what it keeps in host memory
  Bytes host_per_device = 0;           // with the engine's host_factor for pinned buffers, loading, saving
  Bytes host_per_node = 0;             // the same
  Bytes host_per_node_least = 0;       // without it. The verdict takes the middle
  std::optional<Bytes> host_capacity;  // of a node; less what the ranks hold where they are processors
  bool is_lower_bound = false;         // activations are not known
};

// Costs no text: for plans that are tried.
Verdict verdict_of(const MemoryNeed& need);

// Whether a node's host memory holds the states and checkpoints that the plan keeps there; nothing where it
// keeps some and the memory is not described.
std::optional<bool> host_holds(const MemoryNeed& need);
std::optional<bool> host_holds(const Prediction& prediction);

struct Judgement {
  Verdict verdict = Verdict::fits;
  std::string reason;            // half a sentence
  std::vector<Missing> missing;  // of cannot_say; empty otherwise
};

// The verdict of a prediction whose memory has been read, with its text.
Judgement judge(const Prediction& prediction, const describe::Cluster& cluster);

}  // namespace zeroplan::predict
