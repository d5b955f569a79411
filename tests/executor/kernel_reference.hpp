#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "planner/program/step_program.hpp"

// What forward kernels compute, as plain loops in double precision. Backward kernels are held against numeric
// differentiation of these.
namespace zeroplan::executor::test {

using Values = std::vector<double>;

inline std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

struct MatmulShape {
  std::int64_t m, n, k;
};

inline Values matmul(const Values& x, const Values& weight, const Values& bias, MatmulShape shape) {
  Values y(index(shape.m * shape.n));
  for (std::int64_t i = 0; i < shape.m; ++i) {
    for (std::int64_t j = 0; j < shape.n; ++j) {
      double sum = bias.empty() ? 0 : bias[index(j)];
      for (std::int64_t l = 0; l < shape.k; ++l)
        sum += x[index(i * shape.k + l)] * weight[index(j * shape.k + l)];
      y[index(i * shape.n + j)] = sum;
    }
  }
  return y;
}

struct NormShape {
  std::int64_t rows, width;
  bool layer_norm;
  double epsilon;
};

// `parameters`: weights, and behind them biases if there are any.
inline Values norm(const Values& x, const Values& parameters, NormShape shape) {
  Values y(x.size());
  const auto width = static_cast<double>(shape.width);
  const bool bias = parameters.size() == 2 * index(shape.width);
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    const double* in = x.data() + row * shape.width;
    double mean = 0;
    for (std::int64_t i = 0; shape.layer_norm && i < shape.width; ++i) mean += in[i] / width;
    double variance = 0;
    for (std::int64_t i = 0; i < shape.width; ++i) variance += (in[i] - mean) * (in[i] - mean) / width;
    for (std::int64_t i = 0; i < shape.width; ++i) {
      const double normed = (in[i] - mean) / std::sqrt(variance + shape.epsilon);
      y[index(row * shape.width + i)] =
          normed * parameters[index(i)] + (bias ? parameters[index(shape.width + i)] : 0);
    }
  }
  return y;
}

inline double activation(program::ActivationKind kind, double x) {
  using program::ActivationKind;
  switch (kind) {
    case ActivationKind::gelu:
    case ActivationKind::gated_gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case ActivationKind::gelu_tanh:
    case ActivationKind::gated_gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case ActivationKind::silu:
    case ActivationKind::gated_silu:
      return x / (1 + std::exp(-x));
    case ActivationKind::relu:
    case ActivationKind::gated_relu:
      return std::max(x, 0.0);
  }
  return 0;
}

inline Values activate(const Values& before, program::ActivationKind kind, std::int64_t rows,
                       std::int64_t width) {
  Values after(index(rows * width));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < width; ++i) {
      after[index(row * width + i)] = is_gated(kind)
                                          ? before[index(row * 2 * width + i)] *
                                                activation(kind, before[index(row * 2 * width + width + i)])
                                          : activation(kind, before[index(row * width + i)]);
    }
  }
  return after;
}

struct AttentionShape {
  std::int64_t sequences = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0;
  program::ModelConstants model{};

  bool sees(std::int64_t query, std::int64_t key) const {
    using Kind = program::AttentionWindow::Kind;
    if (key > query) return false;
    if (model.window.kind == Kind::sliding) return query - key < model.window.size;
    return model.window.kind == Kind::none || query / model.window.size == key / model.window.size;
  }
  std::int64_t tokens() const { return sequences * sequence; }
  std::int64_t packed() const { return (heads + 2 * kv_heads) * head_dim; }
  std::int64_t context() const { return heads * head_dim; }
  std::int64_t squares() const { return sequences * heads * sequence * sequence; }
};

struct AttentionResult {
  Values context, log_sum_exp, scores, probabilities;
};

// Queries and keys from `query_key` (rows of query and key heads) unless it is empty.
inline AttentionResult attention(const Values& packed, const Values& query_key, const AttentionShape& s) {
  AttentionResult result{Values(index(s.tokens() * s.context())), Values(index(s.tokens() * s.heads)),
                         Values(index(s.squares()), -std::numeric_limits<double>::infinity()),
                         Values(index(s.squares()))};
  const Values& from = query_key.empty() ? packed : query_key;
  const std::int64_t stride = query_key.empty() ? s.packed() : (s.heads + s.kv_heads) * s.head_dim;
  for (std::int64_t sequence = 0; sequence < s.sequences; ++sequence) {
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const std::int64_t kv = head / (s.heads / s.kv_heads);
      for (std::int64_t i = 0; i < s.sequence; ++i) {
        const std::int64_t token = sequence * s.sequence + i;
        const std::int64_t row = ((sequence * s.heads + head) * s.sequence + i) * s.sequence;
        double sum = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          if (!s.sees(i, j)) continue;
          const std::int64_t other = sequence * s.sequence + j;
          double score = 0;
          for (std::int64_t d = 0; d < s.head_dim; ++d) {
            score += from[index(token * stride + head * s.head_dim + d)] *
                     from[index(other * stride + (s.heads + kv) * s.head_dim + d)];
          }
          score *= s.model.attention_scale > 0 ? s.model.attention_scale
                                               : 1 / std::sqrt(static_cast<double>(s.head_dim));
          const double cap = s.model.attention_soft_cap;
          if (cap > 0) score = cap * std::tanh(score / cap);
          if (s.model.alibi_heads > 0) score -= s.model.alibi_slope(head) * static_cast<double>(i - j);
          result.scores[index(row + j)] = score;
          sum += std::exp(result.scores[index(row + j)]);
        }
        result.log_sum_exp[index(token * s.heads + head)] = std::log(sum);
        for (std::int64_t j = 0; j <= i; ++j) {
          const double p = std::exp(result.scores[index(row + j)]) / sum;
          result.probabilities[index(row + j)] = p;
          for (std::int64_t d = 0; d < s.head_dim; ++d) {
            const std::int64_t value =
                (sequence * s.sequence + j) * s.packed() + (s.heads + s.kv_heads + kv) * s.head_dim + d;
            result.context[index(token * s.context() + head * s.head_dim + d)] += p * packed[index(value)];
          }
        }
      }
    }
  }
  return result;
}

// Turns the first `heads` heads of rows of `stride` elements.
inline Values rotary(const Values& x, std::int64_t sequence, std::int64_t heads, std::int64_t head_dim,
                     std::int64_t stride, double base) {
  Values result = x;
  const std::int64_t tokens = static_cast<std::int64_t>(x.size()) / stride;
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t i = 0; i < head_dim / 2; ++i) {
        const double angle = static_cast<double>(token % sequence) /
                             std::pow(base, 2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
        const std::size_t a = index(token * stride + head * head_dim + i);
        const std::size_t b = index(token * stride + head * head_dim + i + head_dim / 2);
        result[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
        result[b] = x[a] * std::sin(angle) + x[b] * std::cos(angle);
      }
    }
  }
  return result;
}

// Sum over tokens whose target is not ignored.
inline double cross_entropy(const Values& logits, const std::vector<std::int32_t>& targets,
                            std::int64_t columns, std::int64_t vocabulary) {
  double total = 0;
  for (std::size_t token = 0; token < targets.size(); ++token) {
    if (targets[token] < 0) continue;
    double sum = 0;
    for (std::int64_t i = 0; i < vocabulary; ++i) sum += std::exp(logits[token * index(columns) + index(i)]);
    total += std::log(sum) - logits[token * index(columns) + index(targets[token])];
  }
  return total;
}

}  // namespace zeroplan::executor::test
