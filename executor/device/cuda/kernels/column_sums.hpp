#pragma once

#include "executor/device/cuda/launch.hpp"

// Sums over rows, as gradients of parameters are: in parts, each of a range of rows in the device's workspace, and then
// over the parts. The order depends on shapes alone, and the whole sum is added with one rounding.
namespace zeroplan::executor::cuda {

// Adds to `to`, of `columns` elements, the sums of `parts` rows in the workspace, `stride` apart.
void add_parts(const Kernel& kernel, const Launcher& launcher, std::int64_t parts, std::int64_t stride,
               const Tensor& to, std::int64_t columns);

// Adds to `to` the sums of the columns of `from`, {rows, columns}.
void add_column_sums(const Kernel& kernel, const Launcher& launcher, const Tensor& from, std::int64_t rows,
                     std::int64_t columns, const Tensor& to);

}  // namespace zeroplan::executor::cuda
