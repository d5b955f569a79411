#pragma once

#include "reports/data.hpp"
#include "reports/validation_report.hpp"

// The record of a run in parts, one JSON line each, while it goes on: `record` says which part a line is. The start
// has what is known before the first step, the end has the rest. All fields of both, and the steps between them,
// are the record that validation_report makes; a line comes for every step, also those that a long run's record
// leaves out.
namespace zeroplan::reports {

Data start_line(const ValidationAnswer& answer);
Data step_line(const program::StepMeasurement& step);
Data end_line(const ValidationAnswer& answer);

// One entry of the record's `measured.steps`.
Data step_data(const program::StepMeasurement& step);

}  // namespace zeroplan::reports
