#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

// Whether a node's host memory holds the states and checkpoints that the plan keeps there; nothing where it
// keeps some and the memory is not described.
std::optional<bool> host_holds(const Prediction& prediction);

struct Judgement {
  Verdict verdict = Verdict::fits;
  std::string reason;            // half a sentence
  std::vector<Missing> missing;  // of cannot_say; empty otherwise
};

// Of a prediction whose memory has been read.
Judgement judge(const Prediction& prediction, const describe::Cluster& cluster);

}  // namespace zeroplan::predict
