#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "block/block.hpp"

// What a warp does as one in a tensor core's instructions, after the PTX ISA (sections "Matrix fragments for mma.m16n8k16",
// "... for mma.m8n8k4" and "ldmatrix"): which lane has which elements. Elements of 16 bits are two in a register, the
// first one low.
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

struct QuadArguments {
  float* c[2];         // {8, 8}, columns 0 to 3 and those behind
  std::uint32_t a[2];  // {8, 4}: row `own`, of which all four
  std::uint32_t b[2];  // {4, 8}: column `own`, of which all four; or four columns of a row
};

// c += a b in fp32 of four products {8, 8, 4}, each by the lanes 4 i to 4 i + 3 and 16 + 4 i to 19 + 4 i: mma.m8n8k4, a by
// rows, and b by rows or by columns.
template <float (*to_float)(std::uint16_t), bool b_by_rows>
void multiply_8x8x4(float (&low)[4], float (&high)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t b0,
                    std::uint32_t b1, const CallPlace& where) {
  QuadArguments brought{{low, high}, {a0, a1}, {b0, b1}};
  meet(
      b_by_rows ? "mma.m8n8k4.row.row" : "mma.m8n8k4.row.col", 0xffffffffU,
      [](void* const* all, unsigned) {
        const auto element = [](const std::uint32_t(&pairs)[2], int i) {
          return to_float(static_cast<std::uint16_t>(pairs[i / 2] >> (i % 2 * 16) & 0xffffU));
        };
        for (int quad = 0; quad < 4; ++quad) {
          float left[8][4];
          float right[4][8];
          for (int lane = 0; lane < kWarp; ++lane) {
            if (lane / 4 % 4 != quad) continue;
            const auto& from = *static_cast<const QuadArguments*>(all[lane]);
            const int later = lane / 16 * 4;
            const int own = lane % 4 + later;
            for (int i = 0; i < 4; ++i) {
              left[own][i] = element(from.a, i);
              (b_by_rows ? right[lane % 4][i + later] : right[i][own]) = element(from.b, i);
            }
          }
          for (int lane = 0; lane < kWarp; ++lane) {
            if (lane / 4 % 4 != quad) continue;
            const auto& to = *static_cast<const QuadArguments*>(all[lane]);
            for (int i = 0; i < 8; ++i) {
              const int row = lane % 2 + (i & 2) + lane / 16 * 4;
              const int column = (i & 4) + (lane & 2) + i % 2;
              float sum = 0;
              for (int k = 0; k < 4; ++k) sum += left[row][k] * right[k][column];
              to.c[i / 4][i % 4] += sum;
            }
          }
        }
      },
      &brought, where);
}

struct LoadArguments {
  std::uint32_t* to;
  std::uint16_t row[8];
};

// Four matrices of 8 rows of 16 bytes; lanes 8 i to 8 i + 7 say where the rows of matrix i are. Refuses rows that are not
// at multiples of 16 bytes.
template <bool transposed>
void load_matrices(std::uint32_t (&to)[4], const void* row, const CallPlace& where) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0)
    fail("ldmatrix of a row that is not at a multiple of 16 bytes");
  LoadArguments brought{to, {}};
  std::memcpy(brought.row, row, sizeof(brought.row));  // by the lane that names it, as races are its own
  meet(
      transposed ? "ldmatrix.trans" : "ldmatrix", 0xffffffffU,
      [](void* const* all, unsigned) {
        for (int matrix = 0; matrix < 4; ++matrix) {
          const std::uint16_t* rows[8];
          for (int i = 0; i < 8; ++i) rows[i] = static_cast<const LoadArguments*>(all[matrix * 8 + i])->row;
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
