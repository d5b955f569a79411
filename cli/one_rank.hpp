#pragma once

#include <optional>
#include <string>

#include "cli/live_run.hpp"

namespace zeroplan::cli {

// The plan of one rank that accumulates the global batch of `plan`, by the executor's own way (engine native),
// with every state and activation in its memory.
describe::Plan one_rank_plan(const describe::Plan& plan);

// Takes the first steps of a run again on one rank, in this process: the same weights, batches and settings.
// How far the figures of the two may be apart (docs/validate.md):
//
//   the same bits    fp32, no tensor parallelism, either one data-parallel rank or no accumulation, and an
//                    engine that adds a tied table's two parts apart (docs/architecture.md, "Bits")
//   otherwise        rounding of the type in another order
program::OneRank repeat_on_one_rank(const LiveRun& run, const describe::Cluster& cluster, std::int64_t steps);

// Why they cannot be taken again here; nothing when they can.
std::optional<std::string> cannot_repeat(const LiveRun& run, const describe::Cluster& cluster);

}  // namespace zeroplan::cli
