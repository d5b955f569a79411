#pragma once

#include "reports/data.hpp"
#include "reports/report.hpp"

// The tables of a run, from the data of its report (zeroplan.validation/1) by key.
namespace zeroplan::reports {

// What was predicted and measured of each figure, and below it how fast the run was.
Table comparison_table(const Data& validation);
// The same of times; of rank 0, as on this machine nothing that a rank runs is beside anything else.
Table compared_times_table(const Data& validation);
// Of a long run the first and the last steps, and some between them at equal distances.
Table steps_table(const Data& validation);
// Where rank 0's time went, the largest first.
Table instructions_table(const Data& validation);

}  // namespace zeroplan::reports
