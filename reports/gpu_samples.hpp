#pragma once

#include <string>

#include "planner/program/measurement.hpp"
#include "reports/data.hpp"
#include "reports/report.hpp"

// What a GPU's clocks, power and temperature were while it worked.
namespace zeroplan::reports {

// Null without samples. Figures that NVML did not tell are null.
Data gpu_samples_data(const program::GpuSamples& samples);

// Of the ranks, the GPU whose clock was lowest, in the same form; null where nobody looked.
Data slowest_gpu_data(const program::Measurement& measurement);

// Rows of such data for a table with `columns` columns: what it is, its unit, ... , and at `measured` the figure.
void add_gpu_rows(Table& table, const Data& gpu, std::size_t columns, std::size_t measured);

// "In 37 % of 120 samples, one every 0.1 s, the clocks were held back: power cap in 37 %."
std::string clocks_text(const Data& gpu);

}  // namespace zeroplan::reports
