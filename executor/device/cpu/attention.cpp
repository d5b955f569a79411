#include <algorithm>
#include <cmath>
#include <limits>

#include "executor/device/cpu/functions.hpp"
#include "executor/device/cpu/heads.hpp"
#include "executor/device/cpu/kernels.hpp"
#include "executor/device/cpu/operands.hpp"

// Causal attention without keeping scores (FlashAttention-2, arXiv 2307.08691). With P = exp(scale Q K^T -
// L), L the log-sum-exp of each row, and D = rowsum(dO o O):
//   O = P V,  dV = P^T dO,  dS = P o (dO V^T - D),  dQ = scale dS K,  dK = scale dS^T Q
// Where scores are capped, dS is multiplied by the cap's derivative. Blocks of keys that no query of a block
// sees are passed over.
namespace zeroplan::executor::cpu {

namespace {

constexpr std::int64_t kQueries = 64;  // rows of a block of scores
constexpr std::int64_t kKeys = 256;    // its columns

// A row of scores becomes exp(score - maximum), what is not seen 0; returns the sum.
float exponentials(float* scores, Seen seen, Elements keys, float maximum) {
  const float sum = wide([=]() ZEROPLAN_INLINE {
    float total = 0;
    ZEROPLAN_SIMD_SUM(total)
    for (Elements i = seen.begin; i < seen.end; ++i) {
      const float value = exponential(scores[i] - maximum);
      scores[i] = value;
      total += value;
    }
    return total;
  });
  std::fill(scores, scores + seen.begin, 0.0F);
  std::fill(scores + seen.end, scores + keys, 0.0F);
  return sum;
}

float maximum_of(const float* values, Elements count) {
  return wide([=]() ZEROPLAN_INLINE { return largest(values, count); });
}

void scale_row(float* row, Elements count, float factor) {
  wide([=]() ZEROPLAN_INLINE {
    ZEROPLAN_SIMD
    for (Elements i = 0; i < count; ++i) row[i] *= factor;
  });
}

struct Running {
  float maximum = -std::numeric_limits<float>::infinity();
  float sum = 0;
};

// One head of one sequence, queries [first, first + queries).
void forward_block(const PackedHeads& packed, std::int64_t sequence, std::int64_t head, std::int64_t first,
                   std::int64_t queries, const HeadRows& out, float* log_sum_exp, Scratch& scratch) {
  const Heads& heads = packed.heads;
  const Elements head_dim = heads.head_dim;
  const std::int64_t kv_head = head / heads.group();
  const Panel query = read_head(packed.query(sequence, head), first, queries, head_dim, scratch);
  float* scores = scratch.floats(kQueries * kKeys);
  const OutputPanel context = begin_head(out, first, queries, head_dim, scratch);
  std::array<Running, kQueries> running{};
  const std::int64_t begin = heads.first_seen(first);
  const float slope = heads.slope(head);
  for (std::int64_t first_key = begin; first_key < first + queries; first_key += kKeys) {
    const Scratch::Frame frame(scratch);
    const std::int64_t keys = std::min(kKeys, first + queries - first_key);
    const Panel key = read_head(packed.key(sequence, kv_head), first_key, keys, head_dim, scratch);
    const Panel value = read_head(packed.value(sequence, kv_head), first_key, keys, head_dim, scratch);
    multiply({.b_transposed = true,
              .m = queries,
              .n = keys,
              .k = head_dim,
              .factor = heads.scale,
              .a = query.data,
              .a_leading = query.leading,
              .b = key.data,
              .b_leading = key.leading,
              .c = scores,
              .c_leading = keys},
             scratch);
    for (std::int64_t i = 0; i < queries; ++i) {
      Running& row = running[static_cast<std::size_t>(i)];
      const Seen seen = seen_keys(heads, first + i, first_key, keys);
      finish_scores(heads, slope, first + i, first_key, seen, scores + i * keys);
      const float maximum =
          std::max(row.maximum, maximum_of(scores + i * keys + seen.begin, seen.end - seen.begin));
      const float kept = row.sum == 0 ? 0.0F : exponential(row.maximum - maximum);
      row.sum = row.sum * kept + exponentials(scores + i * keys, seen, keys, maximum);
      row.maximum = maximum;
      if (first_key > begin) scale_row(context.data + i * context.leading, head_dim, kept);
    }
    multiply({.m = queries,
              .n = head_dim,
              .k = keys,
              .a = scores,
              .a_leading = keys,
              .b = value.data,
              .b_leading = value.leading,
              .keep = first_key == begin ? 0.0F : 1.0F,
              .c = context.data,
              .c_leading = context.leading},
             scratch);
  }
  for (std::int64_t i = 0; i < queries; ++i) {
    const Running& row = running[static_cast<std::size_t>(i)];
    scale_row(context.data + i * context.leading, head_dim, 1.0F / row.sum);
    log_sum_exp[i * heads.heads] = row.maximum + std::log(row.sum);
  }
  finish_head(out, first, queries, head_dim, context);
}

struct Backward {
  PackedHeads packed;
  Tensor dy;
  const float* log_sum_exp = nullptr;  // {tokens, heads}, as the row dots
  const float* row_dots = nullptr;
  std::int64_t sequence = 0;  // which
};

struct HeadGradients {
  OutputPanel query, key, value;  // of the whole sequence
};

// Scores become probabilities, and d probabilities d scores.
void score_gradients(const Backward& backward, std::int64_t head, std::int64_t first, std::int64_t queries,
                     std::int64_t first_key, std::int64_t keys, float* probabilities, float* gradients) {
  const Heads& heads = backward.packed.heads;
  const float slope = heads.slope(head);
  const float cap = heads.soft_cap;
  std::array<float, kKeys> capped{};
  for (std::int64_t i = 0; i < queries; ++i) {
    const Seen seen = seen_keys(heads, first + i, first_key, keys);
    const std::int64_t index = (backward.sequence * heads.sequence + first + i) * heads.heads + head;
    float* p = probabilities + i * keys;
    float* d = gradients + i * keys;
    if (cap > 0) {
      std::copy_n(p, keys, capped.data());
      finish_scores(heads, 0, first + i, first_key, seen, capped.data());
    }
    finish_scores(heads, slope, first + i, first_key, seen, p);
    exponentials(p, seen, keys, backward.log_sum_exp[index]);
    const float dot = backward.row_dots[index];
    wide([=]() ZEROPLAN_INLINE {
      ZEROPLAN_SIMD
      for (Elements j = 0; j < keys; ++j) d[j] = p[j] * (d[j] - dot);
    });
    if (cap == 0) continue;
    const float* scores = capped.data();
    wide([=]() ZEROPLAN_INLINE {
      ZEROPLAN_SIMD
      for (Elements j = seen.begin; j < seen.end; ++j) d[j] *= cap_slope(scores[j], cap);
    });
  }
}

// Queries [first, first + queries) of one head: sets their gradients, adds to those of keys and values.
void backward_block(const Backward& backward, std::int64_t head, std::int64_t first, std::int64_t queries,
                    const HeadGradients& gradients, Scratch& scratch) {
  const Scratch::Frame outer(scratch);
  const Heads& heads = backward.packed.heads;
  const Elements head_dim = heads.head_dim;
  const std::int64_t kv_head = head / heads.group();
  const Panel query =
      read_head(backward.packed.query(backward.sequence, head), first, queries, head_dim, scratch);
  const Panel dy =
      read_head(context_head(backward.dy, heads, backward.sequence, head), first, queries, head_dim, scratch);
  float* scores = scratch.floats(kQueries * kKeys);
  float* d_scores = scratch.floats(kQueries * kKeys);
  const std::int64_t begin = heads.first_seen(first);
  for (std::int64_t first_key = begin; first_key < first + queries; first_key += kKeys) {
    const Scratch::Frame frame(scratch);
    const std::int64_t keys = std::min(kKeys, first + queries - first_key);
    const Panel key =
        read_head(backward.packed.key(backward.sequence, kv_head), first_key, keys, head_dim, scratch);
    const Panel value =
        read_head(backward.packed.value(backward.sequence, kv_head), first_key, keys, head_dim, scratch);
    // {queries, keys} = factor * {queries, head_dim} {keys, head_dim}^T
    const auto against = [&](const Panel& a, const Panel& b, float factor, float* c) {
      multiply({.b_transposed = true,
                .m = queries,
                .n = keys,
                .k = head_dim,
                .factor = factor,
                .a = a.data,
                .a_leading = a.leading,
                .b = b.data,
                .b_leading = b.leading,
                .c = c,
                .c_leading = keys},
               scratch);
    };
    // {keys, head_dim} += factor * {queries, keys}^T {queries, head_dim}
    const auto gather = [&](const float* a, const Panel& b, float factor, const OutputPanel& c) {
      multiply({.a_transposed = true,
                .m = keys,
                .n = head_dim,
                .k = queries,
                .factor = factor,
                .a = a,
                .a_leading = keys,
                .b = b.data,
                .b_leading = b.leading,
                .keep = 1,
                .c = c.data + first_key * c.leading,
                .c_leading = c.leading},
               scratch);
    };
    against(query, key, heads.scale, scores);
    against(dy, value, 1, d_scores);
    score_gradients(backward, head, first, queries, first_key, keys, scores, d_scores);
    gather(scores, dy, 1, gradients.value);
    gather(d_scores, query, heads.scale, gradients.key);
    multiply({.m = queries,
              .n = head_dim,
              .k = keys,
              .factor = heads.scale,
              .a = d_scores,
              .a_leading = keys,
              .b = key.data,
              .b_leading = key.leading,
              .keep = first_key == begin ? 0.0F : 1.0F,
              .c = gradients.query.data + first * gradients.query.leading,
              .c_leading = gradients.query.leading},
             scratch);
  }
}

}  // namespace

void attention_forward(const Kernel& kernel, const StepSettings& settings, Workers& workers) {
  const Heads heads = heads_of(kernel, settings);
  const PackedHeads packed = packed_operands(kernel, heads, 0, 1);
  const Tensor& y = kernel.operands[2];
  const Tensor& log_sum_exp = kernel.operands[3];
  const QueryBlocks blocks(heads, kQueries);
  const std::int64_t count = blocks.count();
  workers.run(heads.sequences * heads.heads * count, [&](std::int64_t task, Scratch& scratch) {
    const std::int64_t first = blocks.first(task % count);
    const std::int64_t queries = blocks.queries(task % count);
    const std::int64_t head = task / count % heads.heads;
    const std::int64_t sequence = task / count / heads.heads;
    if (queries == 0) return;
    float* rows = log_sum_exp.as<float>().data() + (sequence * heads.sequence + first) * heads.heads + head;
    forward_block(packed, sequence, head, first, queries, context_head(y, heads, sequence, head), rows,
                  scratch);
  });
}

void attention_row_dot(const Kernel& kernel, const StepSettings& settings, Workers& workers) {
  const Heads heads = heads_of(kernel, settings);
  const Elements width = heads.context_width();
  const Elements head_dim = heads.head_dim;
  const Tensor& dy = kernel.operands[0];
  const Tensor& y = kernel.operands[1];
  float* dots = kernel.operands[2].as<float>().data();
  over_rows(workers, heads.tokens(), width, [&](std::int64_t first, std::int64_t last, Scratch& scratch) {
    for (std::int64_t token = first; token < last; ++token) {
      const Scratch::Frame frame(scratch);
      const float* a = read(dy, token * width, width, scratch);
      const float* b = read(y, token * width, width, scratch);
      float* out = dots + token * heads.heads;
      const std::int64_t count = heads.heads;
      wide([=]() ZEROPLAN_INLINE {
        for (std::int64_t head = 0; head < count; ++head) {
          float sum = 0;
          ZEROPLAN_SIMD_SUM(sum)
          for (Elements i = 0; i < head_dim; ++i) sum += a[head * head_dim + i] * b[head * head_dim + i];
          out[head] = sum;
        }
      });
    }
  });
}

void attention_backward(const Kernel& kernel, const StepSettings& settings, Workers& workers) {
  const Heads heads = heads_of(kernel, settings);
  Backward whole;
  whole.dy = kernel.operands[0];
  whole.packed = packed_operands(kernel, heads, 1, 2);
  whole.log_sum_exp = kernel.operands[3].as<float>().data();
  whole.row_dots = kernel.operands[4].as<float>().data();
  const PackedHeads d_packed = packed_operands(kernel, heads, 5);
  const Elements head_dim = heads.head_dim;
  const QueryBlocks blocks(heads, kQueries);
  // One task for all query heads of a key-value head, whose gradients they share.
  workers.run(heads.sequences * heads.kv_heads, [&](std::int64_t task, Scratch& scratch) {
    Backward backward = whole;
    backward.sequence = task / heads.kv_heads;
    const std::int64_t kv_head = task % heads.kv_heads;
    const HeadRows d_key = d_packed.key(backward.sequence, kv_head);
    const HeadRows d_value = d_packed.value(backward.sequence, kv_head);
    HeadGradients gradients;
    gradients.key = begin_head(d_key, 0, heads.sequence, head_dim, scratch);
    gradients.value = begin_head(d_value, 0, heads.sequence, head_dim, scratch);
    clear(gradients.key, heads.sequence, head_dim);
    clear(gradients.value, heads.sequence, head_dim);
    for (std::int64_t i = 0; i < heads.group(); ++i) {
      const Scratch::Frame frame(scratch);
      const std::int64_t head = kv_head * heads.group() + i;
      const HeadRows d_query = d_packed.query(backward.sequence, head);
      gradients.query = begin_head(d_query, 0, heads.sequence, head_dim, scratch);
      for (std::int64_t block = 0; block < blocks.count(); ++block) {
        const std::int64_t queries = blocks.queries(block);
        if (queries > 0) backward_block(backward, head, blocks.first(block), queries, gradients, scratch);
      }
      finish_head(d_query, 0, heads.sequence, head_dim, gradients.query);
    }
    finish_head(d_key, 0, heads.sequence, head_dim, gradients.key);
    finish_head(d_value, 0, heads.sequence, head_dim, gradients.value);
  });
}

}  // namespace zeroplan::executor::cpu
