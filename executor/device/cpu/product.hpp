#pragma once

#include "executor/device/cpu/workers.hpp"
#include "executor/tensor.hpp"

namespace zeroplan::executor::cpu {

// C[m,n] = factor * A B + keep * C in fp32, row by row, on this thread. A is [m,k], or stored as [k,m] when
// `a_transposed`; B is [k,n], or stored as [n,k] when `b_transposed`. Leading dimensions count elements of
// stored rows.
struct Product {
  bool a_transposed = false, b_transposed = false;
  Elements m = 0, n = 0, k = 0;
  float factor = 1;
  const float* a = nullptr;
  Elements a_leading = 0;
  const float* b = nullptr;
  Elements b_leading = 0;
  float keep = 0;
  float* c = nullptr;
  Elements c_leading = 0;
};
// Counts its operations in the scratch of the task.
void multiply(const Product& product, Scratch& scratch);

// Whether C = A B + C has the same bits as A B added to C afterwards, for inner dimensions up to kDepthOfOneSum:
// whether the BLAS in use sums so many products before it rounds into C. Tried out once, on a weight gradient.
inline constexpr Elements kDepthOfOneSum = 256;
bool sums_depth_at_once();

// Rows of a larger matrix as fp32: where they are, or a converted copy in scratch.
struct Panel {
  const float* data = nullptr;
  Elements leading = 0;
};
// `rows` rows of `columns` elements, the first at element `offset`, each `stride` behind the one before.
Panel read_panel(const Tensor& tensor, Elements offset, Elements stride, Elements rows, Elements columns,
                 Scratch& scratch);

// The same to write to: finish_panel() rounds a converted one into the tensor.
struct OutputPanel {
  float* data = nullptr;
  Elements leading = 0;
};
OutputPanel begin_panel(const Tensor& tensor, Elements offset, Elements stride, Elements rows,
                        Elements columns, Scratch& scratch);
void finish_panel(const Tensor& tensor, Elements offset, Elements stride, Elements rows, Elements columns,
                  const OutputPanel& panel);
void clear(const OutputPanel& panel, Elements rows, Elements columns);

}  // namespace zeroplan::executor::cpu
