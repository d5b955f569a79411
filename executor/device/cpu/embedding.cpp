#include <algorithm>
#include <utility>

#include "executor/device/cpu/kernels.hpp"
#include "executor/device/cpu/operands.hpp"
#include "executor/device/cpu/wide.hpp"

namespace zeroplan::executor::cpu {

namespace {

struct Embedding {
  std::int64_t tokens = 0;
  Elements width = 0;
  std::int64_t rows = 0, first_row = 0;
  const std::int32_t* indices = nullptr;
  std::int64_t sequence = 0;  // 0 without positions

  // The token's row of this rank's part of the table, or -1.
  std::int64_t row(std::int64_t token) const {
    const std::int64_t local = indices[token] - first_row;
    return local >= 0 && local < rows ? local : -1;
  }
};

Embedding embedding_operands(const Kernel& kernel, std::size_t tokens, const Tensor& positions) {
  Embedding embedding;
  embedding.tokens = kernel.dims[0];
  embedding.width = kernel.dims[1];
  embedding.rows = kernel.dims[2];
  embedding.first_row = kernel.dims[3];
  embedding.indices = kernel.operands[tokens].as<std::int32_t>().data();
  if (positions) {
    embedding.sequence = kernel.extra;
    if (embedding.sequence == 0)
      refuse(kernel, "extra must be the sequence's length: positions depend on it");
  }
  return embedding;
}

void add_into(float* to, const float* from, Elements width) {
  wide([=]() ZEROPLAN_INLINE {
    ZEROPLAN_SIMD
    for (Elements i = 0; i < width; ++i) to[i] += from[i];
  });
}

void scale_into(float* to, const float* from, Elements width, float factor) {
  wide([=]() ZEROPLAN_INLINE {
    ZEROPLAN_SIMD
    for (Elements i = 0; i < width; ++i) to[i] = factor * from[i];
  });
}

// Adds rows of dx, summed apart in the order of `members` and scaled, to one row of a table.
void add_rows(const Tensor& dx, const std::int64_t* members, std::int64_t count, const Tensor& table,
              std::int64_t row, Elements width, float factor, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  float* sum = scratch.floats(width);
  std::fill_n(sum, width, 0.0F);
  for (std::int64_t i = 0; i < count; ++i) {
    const Scratch::Frame inner(scratch);
    add_into(sum, read(dx, members[i] * width, width, scratch), width);
  }
  if (factor != 1) scale_into(sum, sum, width, factor);
  add(table, row * width, width, sum, scratch);
}

}  // namespace

void embedding_forward(const Kernel& kernel, const StepSettings& settings, Workers& workers) {
  const Tensor positions = kernel.operands[2];
  const Embedding embedding = embedding_operands(kernel, 0, positions);
  const Elements width = embedding.width;
  const Tensor table = kernel.operands[1];
  const auto factor = static_cast<float>(settings.model.embedding_scale);
  const Tensor& out = kernel.operands[3];
  over_rows(workers, embedding.tokens, width, [&](std::int64_t first, std::int64_t last, Scratch& scratch) {
    for (std::int64_t token = first; token < last; ++token) {
      const Scratch::Frame frame(scratch);
      const std::int64_t row = embedding.row(token);
      float* to = table ? begin_write(out, token * width, width, scratch)
                        : begin_update(out, token * width, width, scratch);
      if (row >= 0) {
        scale_into(to, read(table, row * width, width, scratch), width, factor);
      } else if (table) {
        std::fill_n(to, width, 0.0F);
      }
      if (embedding.sequence > 0 && embedding.first_row == 0) {
        add_into(to, read(positions, token % embedding.sequence * width, width, scratch), width);
      }
      finish_write(out, token * width, width, to);
    }
  });
}

void embedding_backward(const Kernel& kernel, const StepSettings& settings, Workers& workers) {
  const Tensor positions = kernel.operands[3];
  const Embedding embedding = embedding_operands(kernel, 1, positions);
  const Elements width = embedding.width;
  const std::int64_t tokens = embedding.tokens;
  const Tensor& dx = kernel.operands[0];
  const Tensor table = kernel.operands[2];
  const auto factor = static_cast<float>(settings.model.embedding_scale);

  // Tokens by row, each row's in their order; a task has the rows that begin in its range.
  const Scratch::Frame shared(workers.shared());
  std::int64_t* members = workers.shared().integers(tokens);
  std::int64_t count = 0;
  for (std::int64_t token = 0; token < tokens; ++token) {
    if (embedding.row(token) >= 0) members[count++] = token;
  }
  // As a stable sort by row, which would allocate.
  std::sort(members, members + count, [&](std::int64_t a, std::int64_t b) {
    return std::pair(embedding.row(a), a) < std::pair(embedding.row(b), b);
  });
  over_rows(workers, count, width, [&](std::int64_t first, std::int64_t last, Scratch& scratch) {
    for (std::int64_t begin = first; begin < last;) {
      const std::int64_t row = embedding.row(members[begin]);
      std::int64_t end = begin + 1;
      while (end < count && embedding.row(members[end]) == row) ++end;
      const bool begins_earlier = begin > 0 && embedding.row(members[begin - 1]) == row;
      if (!begins_earlier) add_rows(dx, members + begin, end - begin, table, row, width, factor, scratch);
      begin = end;
    }
  });

  if (embedding.sequence == 0) return;
  const std::int64_t longest = std::min(embedding.sequence, tokens);
  over_rows(workers, longest, width, [&](std::int64_t first, std::int64_t last, Scratch& scratch) {
    std::int64_t* same = scratch.integers(div_ceil(tokens, embedding.sequence));
    for (std::int64_t position = first; position < last; ++position) {
      std::int64_t sequences = 0;
      for (std::int64_t token = position; token < tokens; token += embedding.sequence)
        same[sequences++] = token;
      add_rows(dx, same, sequences, positions, position, width, 1, scratch);
    }
  });
}

}  // namespace zeroplan::executor::cpu
