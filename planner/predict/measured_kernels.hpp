#pragma once

#include <cstdint>

#include "planner/describe/machine/calibration.hpp"
#include "planner/describe/machine/cluster.hpp"
#include "planner/program/step_program.hpp"

// Times of kernels from what `zeroplan calibrate` measured on the machine.
namespace zeroplan::predict {

// What is measured apart: the instruction with the types of its operands.
describe::KernelKind kind_of(const program::StepProgram& program, const program::Instruction& instruction);

// What the measured rates are rates of: the operations of a product or of attention, or the bytes that
// another kernel moves; where those are not described, the product of its dims.
double kernel_work(const program::StepProgram& program, const program::Instruction& instruction);

// The sizes of an instruction on the axes of its table (describe::sizes_of); unused ones are 1.
std::array<double, describe::kMostAxes> kernel_sizes(const program::Instruction& instruction, double work);

// Seconds of a kernel: work / rate, the rate interpolated in the logarithms of sizes and rates, that of the
// nearest size outside the table. 0 where its instruction was not measured.
double measured_seconds(const describe::CalibratedRates& rates, const program::StepProgram& program,
                        const program::Instruction& instruction);

// The fastest matrix product that was measured, in operations per second; 0 where none was.
double fastest_product(const describe::CalibratedRates& rates);

// The rates that were measured with `devices` at work, or with the nearest number; nullptr where the device
// was not calibrated.
const describe::CalibratedRates* calibrated_for(const describe::Device& device, std::int64_t devices);

}  // namespace zeroplan::predict
