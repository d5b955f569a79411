#pragma once

#include <cstddef>
#include <cstdint>

#include "block/block.hpp"

// What a warp does as one in a tensor core's instructions, after the PTX ISA (sections "Matrix fragments for mma.m16n8k16"
// and "ldmatrix"): which lane has which elements. Elements of 16 bits are two in a register, the first one low.
namespace zeroplan::emulation {

struct MultiplyArguments {
  float* c;                // {16, 8}: rows lane / 4 and that + 8, columns 2 (lane % 4) and the next
  const std::uint32_t* a;  // {16, 16}: rows as of c, then the same 8 columns on
  std::uint32_t b[2];      // {16, 8}, rows 2 (lane % 4), the next, and those 8 on; column lane / 4
};

// c += a b in fp32.
template <float (*to_float)(std::uint16_t)>
void multiply_16x8x16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                      const CallPlace& where) {
  MultiplyArguments brought{c, a, {b0, b1}};
  meet(
      "mma", 0xffffffffU,
      [](void* const* all, unsigned) {
        float left[16][16];
        float right[16][8];
        const auto low = [](std::uint32_t pair) {
          return to_float(static_cast<std::uint16_t>(pair & 0xffffU));
        };
        const auto high = [](std::uint32_t pair) {
          return to_float(static_cast<std::uint16_t>(pair >> 16U));
        };
        for (int lane = 0; lane < kWarp; ++lane) {
          const auto& from = *static_cast<const MultiplyArguments*>(all[lane]);
          const int row = lane / 4;
          const int column = lane % 4 * 2;
          for (int part = 0; part < 4; ++part) {
            float* to = &left[row + part % 2 * 8][column + part / 2 * 8];
            to[0] = low(from.a[part]);
            to[1] = high(from.a[part]);
          }
          for (int part = 0; part < 2; ++part) {
            right[column + part * 8][row] = low(from.b[part]);
            right[column + part * 8 + 1][row] = high(from.b[part]);
          }
        }
        float sums[16][8] = {};
        for (int i = 0; i < 16; ++i) {
          for (int k = 0; k < 16; ++k) {
            for (int j = 0; j < 8; ++j) sums[i][j] += left[i][k] * right[k][j];
          }
        }
        for (int lane = 0; lane < kWarp; ++lane) {
          float* to = static_cast<MultiplyArguments*>(all[lane])->c;
          const int row = lane / 4;
          const int column = lane % 4 * 2;
          for (int part = 0; part < 4; ++part) to[part] += sums[row + part / 2 * 8][column + part % 2];
        }
      },
      &brought, where);
}

struct LoadArguments {
  std::uint32_t* to;
  const void* row;
};

// Four matrices of 8 rows of 16 bytes; lanes 8 i to 8 i + 7 say where the rows of matrix i are. Refuses rows that are not
// at multiples of 16 bytes.
template <bool transposed>
void load_matrices(std::uint32_t (&to)[4], const void* row, const CallPlace& where) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0)
    fail("ldmatrix of a row that is not at a multiple of 16 bytes");
  LoadArguments brought{to, row};
  meet(
      transposed ? "ldmatrix.trans" : "ldmatrix", 0xffffffffU,
      [](void* const* all, unsigned) {
        for (int matrix = 0; matrix < 4; ++matrix) {
          const std::uint16_t* rows[8];
          for (int i = 0; i < 8; ++i) {
            const void* from = static_cast<const LoadArguments*>(all[matrix * 8 + i])->row;
            rows[i] = static_cast<const std::uint16_t*>(from);
          }
          for (int lane = 0; lane < kWarp; ++lane) {
            const int i = lane / 4;
            const int j = lane % 4 * 2;
            const std::uint32_t low = transposed ? rows[j][i] : rows[i][j];
            const std::uint32_t high = transposed ? rows[j + 1][i] : rows[i][j + 1];
            static_cast<LoadArguments*>(all[lane])->to[matrix] = high << 16U | low;
          }
        }
      },
      &brought, where);
}

}  // namespace zeroplan::emulation
