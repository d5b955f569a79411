#include "executor/device/cpu/product.hpp"

#include <cblas.h>

#include <algorithm>

#include "executor/device/cpu/operands.hpp"
#include "executor/half_arrays.hpp"

namespace zeroplan::executor::cpu {

using program::DataType;

void multiply(const Product& p, Scratch& scratch) {
  if (p.m == 0 || p.n == 0) return;
  scratch.count_product_flops(2.0 * static_cast<Flops>(p.m) * static_cast<Flops>(p.n) *
                              static_cast<Flops>(p.k));
  cblas_sgemm(CblasRowMajor, p.a_transposed ? CblasTrans : CblasNoTrans,
              p.b_transposed ? CblasTrans : CblasNoTrans, narrow<blasint>(p.m), narrow<blasint>(p.n),
              narrow<blasint>(p.k), p.factor, p.a, narrow<blasint>(p.a_leading), p.b,
              narrow<blasint>(p.b_leading), p.keep, p.c, narrow<blasint>(p.c_leading));
}

Panel read_panel(const Tensor& tensor, Elements offset, Elements stride, Elements rows, Elements columns,
                 Scratch& scratch) {
  if (tensor.type == DataType::fp32) return {tensor.as<float>().data() + offset, stride};
  const std::uint16_t* from = tensor.as<std::uint16_t>().data() + offset;
  float* to = scratch.floats(rows * columns);
  for (Elements row = 0; row < rows; ++row) {
    floats_from_halves(tensor.type, from + row * stride, to + row * columns, columns);
  }
  return {to, columns};
}

OutputPanel begin_panel(const Tensor& tensor, Elements offset, Elements stride, Elements rows,
                        Elements columns, Scratch& scratch) {
  if (tensor.type == DataType::fp32) return {tensor.as<float>().data() + offset, stride};
  return {scratch.floats(rows * columns), columns};
}

void finish_panel(const Tensor& tensor, Elements offset, Elements stride, Elements rows, Elements columns,
                  const OutputPanel& panel) {
  if (tensor.type == DataType::fp32) return;
  for (Elements row = 0; row < rows; ++row) {
    finish_write(tensor, offset + row * stride, columns, panel.data + row * panel.leading);
  }
}

void clear(const OutputPanel& panel, Elements rows, Elements columns) {
  for (Elements row = 0; row < rows; ++row) std::fill_n(panel.data + row * panel.leading, columns, 0.0F);
}

}  // namespace zeroplan::executor::cpu
