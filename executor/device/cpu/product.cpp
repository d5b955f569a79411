#include "executor/device/cpu/product.hpp"

#include <cblas.h>

#include <algorithm>
#include <cstdint>
#include <vector>

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

namespace {

// Numbers between -1 and 1 with all their bits in use.
std::vector<float> varied(std::size_t count, std::uint32_t seed) {
  std::vector<float> numbers(count);
  for (float& number : numbers) {
    seed = seed * 1664525U + 1013904223U;
    number = static_cast<float>(static_cast<std::int32_t>(seed)) / 2147483648.0F;
  }
  return numbers;
}

bool try_depth_at_once() {
  constexpr Elements kSide = 96;
  const auto size = static_cast<std::size_t>(kDepthOfOneSum * kSide);
  const std::vector<float> a = varied(size, 1), b = varied(size, 2);
  const std::vector<float> before = varied(static_cast<std::size_t>(kSide * kSide), 3);
  std::vector<float> direct = before, apart(before.size());
  Scratch scratch;
  Product product{.a_transposed = true,
                  .m = kSide,
                  .n = kSide,
                  .k = kDepthOfOneSum,
                  .a = a.data(),
                  .a_leading = kSide,
                  .b = b.data(),
                  .b_leading = kSide,
                  .keep = 1,
                  .c = direct.data(),
                  .c_leading = kSide};
  multiply(product, scratch);
  product.keep = 0;
  product.c = apart.data();
  multiply(product, scratch);
  for (std::size_t i = 0; i < before.size(); ++i) apart[i] = before[i] + apart[i];
  return apart == direct;
}

}  // namespace

bool sums_depth_at_once() {
  static const bool at_once = try_depth_at_once();
  return at_once;
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
