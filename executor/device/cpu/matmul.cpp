#include <algorithm>

#include "executor/device/cpu/kernels.hpp"
#include "executor/device/cpu/operands.hpp"
#include "executor/device/cpu/product.hpp"
#include "executor/device/cpu/wide.hpp"

namespace zeroplan::executor::cpu {

using program::DataType;

namespace {

// A result is computed tile by tile; each is one task. Large results have larger tiles, which repack less.
constexpr Elements kTileRows = 256;
Elements tile_columns(Elements columns) {
  if (columns >= 6144) return 768;
  return columns >= 1536 ? 384 : 192;
}
// Where a weight gradient is summed in a tile of its own before it is added, that should stay in the
// second-level cache.
constexpr Elements kGradientRows = 192, kGradientColumns = 768;
Elements direct_gradient_rows(Elements rows) {
  if (rows >= 12288) return 768;
  return rows >= 2304 ? 384 : 192;
}
// How much of the inner dimension is converted from 16 bits at a time.
constexpr Elements kConvertedDepth = 256;

// A factor of a tile's product: a row-major matrix, `count` of whose rows (or columns, when its rows are the
// inner dimension) from `first` on are meant.
struct Factor {
  Tensor tensor;
  Elements stride = 0;
  bool depth_in_rows = false;
  Elements first = 0, count = 0;

  Panel panel(Elements depth_begin, Elements depth, Scratch& scratch) const {
    if (depth_in_rows) return read_panel(tensor, depth_begin * stride + first, stride, depth, count, scratch);
    return read_panel(tensor, first * stride + depth_begin, stride, count, depth, scratch);
  }
};

// tile = a b + keep * tile
void multiply_tile(const Factor& a, const Factor& b, Elements depth, float keep, const OutputPanel& tile,
                   Scratch& scratch) {
  const bool converts = a.tensor.type != DataType::fp32 || b.tensor.type != DataType::fp32;
  const Elements step = converts ? kConvertedDepth : std::max<Elements>(1, depth);
  if (depth == 0 && keep == 0) clear(tile, a.count, b.count);
  for (Elements begin = 0; begin < depth; begin += step) {
    const Scratch::Frame frame(scratch);
    const Elements part = std::min(step, depth - begin);
    const Panel left = a.panel(begin, part, scratch);
    const Panel right = b.panel(begin, part, scratch);
    multiply({.a_transposed = a.depth_in_rows,
              .b_transposed = !b.depth_in_rows,
              .m = a.count,
              .n = b.count,
              .k = part,
              .a = left.data,
              .a_leading = left.leading,
              .b = right.data,
              .b_leading = right.leading,
              .keep = begin == 0 ? keep : 1.0F,
              .c = tile.data,
              .c_leading = tile.leading},
             scratch);
  }
}

// body(row, rows, column, columns, scratch) over the tiles of a result.
template <class Body>
void over_tiles(Workers& workers, Elements rows, Elements columns, Elements high, Elements across,
                const Body& body) {
  const std::int64_t down = div_ceil(rows, high);
  workers.run(down * div_ceil(columns, across), [&](std::int64_t task, Scratch& scratch) {
    const Elements row = task % down * high;
    const Elements column = task / down * across;
    body(row, std::min(high, rows - row), column, std::min(across, columns - column), scratch);
  });
}

void add_bias(const OutputPanel& tile, Elements rows, Elements columns, const float* bias) {
  float* to = tile.data;
  const Elements leading = tile.leading;
  wide([=]() ZEROPLAN_INLINE {
    for (Elements row = 0; row < rows; ++row) {
      ZEROPLAN_SIMD
      for (Elements i = 0; i < columns; ++i) to[row * leading + i] += bias[i];
    }
  });
}

// Column sums of dy, added to db with one rounding.
void add_bias_gradient(const Factor& dy, Elements rows, const Tensor& db, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const Elements columns = dy.count;
  float* sums = scratch.floats(columns);
  std::fill_n(sums, columns, 0.0F);
  constexpr Elements kRows = 64;
  for (Elements begin = 0; begin < rows; begin += kRows) {
    const Scratch::Frame inner(scratch);
    const Elements part = std::min(kRows, rows - begin);
    const Panel panel = dy.panel(begin, part, scratch);
    wide([=]() ZEROPLAN_INLINE {
      for (Elements row = 0; row < part; ++row) {
        ZEROPLAN_SIMD
        for (Elements i = 0; i < columns; ++i) sums[i] += panel.data[row * panel.leading + i];
      }
    });
  }
  add(db, dy.first, columns, sums, scratch);
}

}  // namespace

void matmul(const Kernel& kernel, Workers& workers) {
  const auto [m, n, k, unused] = kernel.dims;
  const Tensor& x = kernel.operands[0];
  const Tensor& weight = kernel.operands[1];
  const Tensor bias = kernel.operands[2];
  const Tensor& y = kernel.operands[3];
  over_tiles(
      workers, m, n, kTileRows, tile_columns(n),
      [&, n = n, k = k](Elements row, Elements rows, Elements column, Elements columns, Scratch& scratch) {
        const Elements offset = row * n + column;
        const OutputPanel tile = begin_panel(y, offset, n, rows, columns, scratch);
        multiply_tile({x, k, false, row, rows}, {weight, k, false, column, columns}, k, 0, tile, scratch);
        if (bias) add_bias(tile, rows, columns, read(bias, column, columns, scratch));
        finish_panel(y, offset, n, rows, columns, tile);
      });
}

void matmul_input_gradient(const Kernel& kernel, Workers& workers) {
  const auto [m, n, k, unused] = kernel.dims;
  const Tensor& dy = kernel.operands[0];
  const Tensor& weight = kernel.operands[1];
  const Tensor& dx = kernel.operands[2];
  const bool overwrite = (kernel.flags & program::kOverwrite) != 0;
  over_tiles(
      workers, m, k, kTileRows, tile_columns(k),
      [&, n = n, k = k](Elements row, Elements rows, Elements column, Elements columns, Scratch& scratch) {
        const Elements offset = row * k + column;
        const OutputPanel tile = begin_panel(dx, offset, k, rows, columns, scratch);
        const bool in_place = dx.type == DataType::fp32;
        multiply_tile({dy, n, false, row, rows}, {weight, k, true, column, columns}, n,
                      in_place && !overwrite ? 1.0F : 0.0F, tile, scratch);
        if (in_place) return;
        if (overwrite) {
          finish_panel(dx, offset, k, rows, columns, tile);
          return;
        }
        for (Elements i = 0; i < rows; ++i) {
          add(dx, offset + i * k, columns, tile.data + i * tile.leading, scratch);
        }
      });
}

void matmul_weight_gradient(const Kernel& kernel, Workers& workers) {
  const auto [m, n, k, unused] = kernel.dims;
  const Tensor& dy = kernel.operands[0];
  const Tensor& x = kernel.operands[1];
  const Tensor& dw = kernel.operands[2];
  const Tensor db = kernel.operands[3];
  const bool direct = dw.type == DataType::fp32 && m <= kDepthOfOneSum && sums_depth_at_once();
  over_tiles(workers, n, k, direct ? direct_gradient_rows(n) : kGradientRows, kGradientColumns,
             [&, m = m, n = n, k = k](Elements row, Elements rows, Elements column, Elements columns,
                                      Scratch& scratch) {
               const Factor left{dy, n, true, row, rows};
               const Factor right{x, k, true, column, columns};
               if (direct) {
                 const Elements offset = row * k + column;
                 multiply_tile(left, right, m, 1, begin_panel(dw, offset, k, rows, columns, scratch),
                               scratch);
               } else {
                 const OutputPanel tile{scratch.floats(rows * columns), columns};
                 multiply_tile(left, right, m, 0, tile, scratch);
                 for (Elements i = 0; i < rows; ++i) {
                   add(dw, (row + i) * k + column, columns, tile.data + i * columns, scratch);
                 }
               }
               if (db && column == 0) add_bias_gradient(left, m, db, scratch);
             });
}

}  // namespace zeroplan::executor::cpu
