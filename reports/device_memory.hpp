#pragma once

#include <optional>
#include <vector>

#include "planner/predict/prediction.hpp"
#include "planner/program/measurement.hpp"
#include "reports/comparison.hpp"
#include "reports/data.hpp"
#include "reports/report.hpp"

// A device's whole memory, as its driver counts it: what the program acquires, and what the runtime and its libraries take.
namespace zeroplan::reports {

// Of the rank with most at the end.
struct DeviceMemoryLine {
  program::MemoryPoint point{};
  Bytes used = 0;    // then; of the process where the driver says that, else of the device
  Bytes growth = 0;  // since the point before
  Bytes predicted_growth = 0;
  Bytes nvml_used = 0, nvml_of_process = 0;  // as NVML says; 0 where it does not
};
// Empty where the device has no memory of its own, and where ranks share one, whose driver counts them together.
std::vector<DeviceMemoryLine> device_memory(const predict::Prediction& prediction,
                                            const program::Measurement& measurement);

// Whether the ranks had devices with memory of their own.
bool ran_on_gpus(const program::Measurement& measurement);

// The whole device, predicted and measured; within 1 % or 200 MiB. Nothing where several ranks share a process, whose
// context then is one, and where the plan is for a machine without such devices.
std::optional<ComparedFigure> device_total(const predict::Prediction& prediction,
                                           const program::Measurement& measurement);

// A list with a map for each line; null where there is none.
Data device_memory_data(const std::vector<DeviceMemoryLine>& lines);
// From such a list.
Table device_memory_table(const Data::List& lines);

}  // namespace zeroplan::reports
