#pragma once

#include <optional>
#include <string>

#include "cli/live_run.hpp"

namespace zeroplan::cli {

// Takes the first steps of a run again on one rank, in this process: the same weights, batches and settings.
// How far the figures of the two may be apart says planner/solve/one_rank.hpp.
program::OneRank repeat_on_one_rank(const LiveRun& run, const describe::Cluster& cluster, std::int64_t steps);

// Why they cannot be taken again here; nothing when they can.
std::optional<std::string> cannot_repeat(const LiveRun& run, const describe::Cluster& cluster);

}  // namespace zeroplan::cli
