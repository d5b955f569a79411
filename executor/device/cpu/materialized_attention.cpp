#include <algorithm>
#include <limits>

#include "executor/device/cpu/functions.hpp"
#include "executor/device/cpu/heads.hpp"
#include "executor/device/cpu/kernels.hpp"
#include "executor/device/cpu/operands.hpp"

// Attention whose scores, {sequences, heads, sequence, sequence}, are kept (Megatron-LM, arXiv 1909.08053).
namespace zeroplan::executor::cpu {

namespace {

constexpr std::int64_t kRows = 64;  // of scores at a time

// Where a head's square of scores begins.
Elements square(const Heads& heads, std::int64_t sequence, std::int64_t head) {
  return (sequence * heads.heads + head) * heads.sequence * heads.sequence;
}

// body(sequence, head, first row, rows, scratch)
template <class Body>
void over_score_rows(Workers& workers, const Heads& heads, const Body& body) {
  const std::int64_t blocks = div_ceil(heads.sequence, kRows);
  workers.run(heads.sequences * heads.heads * blocks, [&](std::int64_t task, Scratch& scratch) {
    const std::int64_t first = task % blocks * kRows;
    body(task / blocks / heads.heads, task / blocks % heads.heads, first,
         std::min(kRows, heads.sequence - first), scratch);
  });
}

// Scores of keys that are not seen, in rows of scores that begin with query `first`.
void fill_masked(const Heads& heads, const OutputPanel& scores, std::int64_t first, std::int64_t rows,
                 float value) {
  for (std::int64_t i = 0; i < rows; ++i) {
    float* row = scores.data + i * scores.leading;
    const Seen seen = seen_keys(heads, first + i, 0, heads.sequence);
    std::fill(row, row + seen.begin, value);
    std::fill(row + seen.end, row + heads.sequence, value);
  }
}

void finish_rows(const Heads& heads, float slope, const OutputPanel& scores, std::int64_t first,
                 std::int64_t rows) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const Seen seen = seen_keys(heads, first + i, 0, heads.sequence);
    finish_scores(heads, slope, first + i, 0, seen, scores.data + i * scores.leading);
  }
}

// {m, n} = factor A B^T
void times_transposed(const Panel& a, const Panel& b, Elements m, Elements n, Elements k, float factor,
                      const OutputPanel& c, Scratch& scratch) {
  multiply({.b_transposed = true,
            .m = m,
            .n = n,
            .k = k,
            .factor = factor,
            .a = a.data,
            .a_leading = a.leading,
            .b = b.data,
            .b_leading = b.leading,
            .c = c.data,
            .c_leading = c.leading},
           scratch);
}

// {m, n} = factor A B
void times(const Panel& a, const Panel& b, Elements m, Elements n, Elements k, float factor,
           const OutputPanel& c, Scratch& scratch) {
  multiply({.m = m,
            .n = n,
            .k = k,
            .factor = factor,
            .a = a.data,
            .a_leading = a.leading,
            .b = b.data,
            .b_leading = b.leading,
            .c = c.data,
            .c_leading = c.leading},
           scratch);
}

// d kv [keys, head_dim] = factor * sum over the group's query heads of squares^T rows, rounded once.
// rows(head): what stands beside the squares' rows.
template <class Rows>
void sum_over_group(const Heads& heads, const Tensor& scores, std::int64_t sequence, std::int64_t kv_head,
                    const Rows& rows, float factor, const HeadRows& out, Scratch& scratch) {
  const Elements length = heads.sequence;
  const OutputPanel sum = begin_head(out, 0, length, heads.head_dim, scratch);
  clear(sum, length, heads.head_dim);
  for (std::int64_t i = 0; i < heads.group(); ++i) {
    const std::int64_t head = kv_head * heads.group() + i;
    for (std::int64_t first = 0; first < length; first += kRows) {
      const Scratch::Frame frame(scratch);
      const std::int64_t count = std::min(kRows, length - first);
      const Panel left =
          read_panel(scores, square(heads, sequence, head) + first * length, length, count, length, scratch);
      const Panel right = read_head(rows(head), first, count, heads.head_dim, scratch);
      multiply({.a_transposed = true,
                .m = length,
                .n = heads.head_dim,
                .k = count,
                .factor = factor,
                .a = left.data,
                .a_leading = left.leading,
                .b = right.data,
                .b_leading = right.leading,
                .keep = 1,
                .c = sum.data,
                .c_leading = sum.leading},
               scratch);
    }
  }
  finish_head(out, 0, length, heads.head_dim, sum);
}

}  // namespace

void attention_scores(const Kernel& kernel, const StepSettings& settings, Workers& workers) {
  const Heads heads = heads_of(kernel, settings);
  const PackedHeads packed = packed_operands(kernel, heads, 0, 1);
  const Tensor& scores = kernel.operands[2];
  const Elements length = heads.sequence;
  over_score_rows(
      workers, heads,
      [&](std::int64_t sequence, std::int64_t head, std::int64_t first, std::int64_t rows, Scratch& scratch) {
        const Elements offset = square(heads, sequence, head) + first * length;
        const Panel query = read_head(packed.query(sequence, head), first, rows, heads.head_dim, scratch);
        const Panel key =
            read_head(packed.key(sequence, head / heads.group()), 0, length, heads.head_dim, scratch);
        const OutputPanel out = begin_panel(scores, offset, length, rows, length, scratch);
        times_transposed(query, key, rows, length, heads.head_dim, heads.scale, out, scratch);
        finish_rows(heads, heads.slope(head), out, first, rows);
        fill_masked(heads, out, first, rows, -std::numeric_limits<float>::infinity());
        finish_panel(scores, offset, length, rows, length, out);
      });
}

void softmax_forward(const Kernel& kernel, Workers& workers) {
  const std::int64_t rows = kernel.dims[0];
  const Elements width = kernel.dims[1];
  const Tensor& scores = kernel.operands[0];
  const Tensor& probabilities = kernel.operands[1];
  over_rows(workers, rows, width, [&](std::int64_t first, std::int64_t last, Scratch& scratch) {
    for (std::int64_t row = first; row < last; ++row) {
      const Scratch::Frame frame(scratch);
      const float* in = read(scores, row * width, width, scratch);
      float* out = begin_write(probabilities, row * width, width, scratch);
      wide([=]() ZEROPLAN_INLINE {
        const float maximum = largest(in, width);
        float sum = 0;
        ZEROPLAN_SIMD_SUM(sum)
        for (Elements i = 0; i < width; ++i) {
          const float value = exponential(in[i] - maximum);
          out[i] = value;
          sum += value;
        }
        const float inverse = 1.0F / sum;
        ZEROPLAN_SIMD
        for (Elements i = 0; i < width; ++i) out[i] *= inverse;
      });
      finish_write(probabilities, row * width, width, out);
    }
  });
}

void attention_values(const Kernel& kernel, const StepSettings& settings, Workers& workers) {
  const Heads heads = heads_of(kernel, settings);
  const Tensor& probabilities = kernel.operands[0];
  const PackedHeads packed = packed_operands(kernel, heads, 1);
  const Tensor& y = kernel.operands[2];
  const Elements length = heads.sequence;
  over_score_rows(
      workers, heads,
      [&](std::int64_t sequence, std::int64_t head, std::int64_t first, std::int64_t rows, Scratch& scratch) {
        const Panel left = read_panel(probabilities, square(heads, sequence, head) + first * length, length,
                                      rows, length, scratch);
        const Panel value =
            read_head(packed.value(sequence, head / heads.group()), 0, length, heads.head_dim, scratch);
        const HeadRows context = context_head(y, heads, sequence, head);
        const OutputPanel out = begin_head(context, first, rows, heads.head_dim, scratch);
        times(left, value, rows, heads.head_dim, length, 1, out, scratch);
        finish_head(context, first, rows, heads.head_dim, out);
      });
}

void attention_values_backward(const Kernel& kernel, const StepSettings& settings, Workers& workers) {
  const Heads heads = heads_of(kernel, settings);
  const Tensor& dy = kernel.operands[0];
  const Tensor& probabilities = kernel.operands[1];
  const PackedHeads packed = packed_operands(kernel, heads, 2);
  const Tensor& gradient = kernel.operands[3];
  const PackedHeads d_packed = packed_operands(kernel, heads, 4);
  const Elements length = heads.sequence;
  over_score_rows(
      workers, heads,
      [&](std::int64_t sequence, std::int64_t head, std::int64_t first, std::int64_t rows, Scratch& scratch) {
        const Elements offset = square(heads, sequence, head) + first * length;
        const Panel left =
            read_head(context_head(dy, heads, sequence, head), first, rows, heads.head_dim, scratch);
        const Panel value =
            read_head(packed.value(sequence, head / heads.group()), 0, length, heads.head_dim, scratch);
        const OutputPanel out = begin_panel(gradient, offset, length, rows, length, scratch);
        times_transposed(left, value, rows, length, heads.head_dim, 1, out, scratch);
        fill_masked(heads, out, first, rows, 0);
        finish_panel(gradient, offset, length, rows, length, out);
      });
  workers.run(heads.sequences * heads.kv_heads, [&](std::int64_t task, Scratch& scratch) {
    const std::int64_t sequence = task / heads.kv_heads;
    const std::int64_t kv_head = task % heads.kv_heads;
    const auto rows = [&](std::int64_t head) { return context_head(dy, heads, sequence, head); };
    sum_over_group(heads, probabilities, sequence, kv_head, rows, 1, d_packed.value(sequence, kv_head),
                   scratch);
  });
}

void softmax_backward(const Kernel& kernel, Workers& workers) {
  const std::int64_t rows = kernel.dims[0];
  const Elements width = kernel.dims[1];
  const Tensor& probabilities = kernel.operands[0];
  const Tensor& gradient = kernel.operands[1];
  over_rows(workers, rows, width, [&](std::int64_t first, std::int64_t last, Scratch& scratch) {
    for (std::int64_t row = first; row < last; ++row) {
      const Scratch::Frame frame(scratch);
      const float* p = read(probabilities, row * width, width, scratch);
      float* d = begin_update(gradient, row * width, width, scratch);
      wide([=]() ZEROPLAN_INLINE {
        float dot = 0;
        ZEROPLAN_SIMD_SUM(dot)
        for (Elements i = 0; i < width; ++i) dot += p[i] * d[i];
        ZEROPLAN_SIMD
        for (Elements i = 0; i < width; ++i) d[i] = p[i] * (d[i] - dot);
      });
      finish_write(gradient, row * width, width, d);
    }
  });
}

namespace {

// Gradients of capped scores become those of the scores before, which are made once more.
void uncap_gradients(const Heads& heads, const PackedHeads& packed, const Tensor& d_scores,
                     Workers& workers) {
  const Elements length = heads.sequence;
  const float cap = heads.soft_cap;
  over_score_rows(
      workers, heads,
      [&](std::int64_t sequence, std::int64_t head, std::int64_t first, std::int64_t rows, Scratch& scratch) {
        const Panel query = read_head(packed.query(sequence, head), first, rows, heads.head_dim, scratch);
        const Panel key =
            read_head(packed.key(sequence, head / heads.group()), 0, length, heads.head_dim, scratch);
        const OutputPanel scores{scratch.floats(rows * length), length};
        times_transposed(query, key, rows, length, heads.head_dim, heads.scale, scores, scratch);
        finish_rows(heads, 0, scores, first, rows);
        for (std::int64_t i = 0; i < rows; ++i) {
          const Scratch::Frame frame(scratch);
          const Elements offset = square(heads, sequence, head) + (first + i) * length;
          const Seen seen = seen_keys(heads, first + i, 0, length);
          const float* capped = scores.data + i * length;
          float* d = begin_update(d_scores, offset, length, scratch);
          wide([=]() ZEROPLAN_INLINE {
            ZEROPLAN_SIMD
            for (Elements j = seen.begin; j < seen.end; ++j) d[j] *= cap_slope(capped[j], cap);
          });
          finish_write(d_scores, offset, length, d);
        }
      });
}

}  // namespace

void attention_scores_backward(const Kernel& kernel, const StepSettings& settings, Workers& workers) {
  const Heads heads = heads_of(kernel, settings);
  const Tensor& d_scores = kernel.operands[0];
  const PackedHeads packed = packed_operands(kernel, heads, 1, 2);
  const PackedHeads d_packed = packed_operands(kernel, heads, 3);
  const Elements length = heads.sequence;
  if (heads.soft_cap > 0) uncap_gradients(heads, packed, d_scores, workers);
  over_score_rows(
      workers, heads,
      [&](std::int64_t sequence, std::int64_t head, std::int64_t first, std::int64_t rows, Scratch& scratch) {
        const Panel left = read_panel(d_scores, square(heads, sequence, head) + first * length, length, rows,
                                      length, scratch);
        const Panel key =
            read_head(packed.key(sequence, head / heads.group()), 0, length, heads.head_dim, scratch);
        const HeadRows d_query = d_packed.query(sequence, head);
        const OutputPanel out = begin_head(d_query, first, rows, heads.head_dim, scratch);
        times(left, key, rows, heads.head_dim, length, heads.scale, out, scratch);
        finish_head(d_query, first, rows, heads.head_dim, out);
      });
  workers.run(heads.sequences * heads.kv_heads, [&](std::int64_t task, Scratch& scratch) {
    const std::int64_t sequence = task / heads.kv_heads;
    const std::int64_t kv_head = task % heads.kv_heads;
    const auto rows = [&](std::int64_t head) { return packed.query(sequence, head); };
    sum_over_group(heads, d_scores, sequence, kv_head, rows, heads.scale, d_packed.key(sequence, kv_head),
                   scratch);
  });
}

}  // namespace zeroplan::executor::cpu
