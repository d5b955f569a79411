#pragma once

#include "planner/describe/machine/cluster.hpp"
#include "planner/predict/prediction.hpp"
#include "planner/program/measurement.hpp"
#include "reports/data.hpp"
#include "reports/report.hpp"

// How fast collectives moved what they moved, beside the links that they went over.
namespace zeroplan::reports {

// A map for each group and collective of a step: calls, what a rank moved (the mean of them), the seconds that rank 0
// spent without waiting for others, and the rate. The link's rate is of the machine that the plan is for, and there where
// the run was on GPUs: in a node that of a device's link, between nodes what a node's network gives each rank.
Data traffic_data(const predict::Prediction& prediction, const describe::Cluster& cluster,
                  const program::Measurement& measurement);
// From such a list.
Table traffic_table(const Data::List& traffic);

}  // namespace zeroplan::reports
