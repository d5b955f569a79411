#pragma once

#include <string>
#include <vector>

#include "planner/describe/machine/cluster.hpp"
#include "reports/report.hpp"

// What is told of one plan, part by part, from the data of its answer: for `fit` and for pages. `result`: figures_data().
namespace zeroplan::reports {

Table memory_table(const Data& result);
// Where the peak is.
std::string peak_sentence(const Data& at);
// The largest buffers then; `live` is alive_at_peak.
Table live_table(const Data::List& live);
// Nothing where no host memory is held.
void add_host(std::vector<Block>& blocks, const Data& result, const describe::Device& device);
// The collectives of each group and their sum; what goes between a device and its host.
Table traffic_table(const Data& result);
std::string flops_sentence(const Data& result);
// The changes that make it fit, with their commands.
void add_suggestions(std::vector<Block>& blocks, const Data::List& suggestions);

}  // namespace zeroplan::reports
