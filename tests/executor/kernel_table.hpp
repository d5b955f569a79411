#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "executor/dropout.hpp"
#include "tests/executor/kernel_harness.hpp"
#include "tests/executor/kernel_reference.hpp"

// One table of cases for every Device: each kernel, over odd sizes and types, forward against loops in double
// precision and backward against numeric differentiation of them.
namespace zeroplan::executor::test {

using program::ActivationKind;
using program::kOverwrite;
using program::Scalar;

struct KernelCase {
  std::string name;
  std::function<void(Device&)> check;

  // Sequences of several blocks, which take most of the table's time.
  bool is_long() const {
    return name.find("long") != std::string::npos || name.find("windows") != std::string::npos;
  }
};
using KernelTable = std::vector<KernelCase>;

inline const std::vector<DataType>& real_types() {
  static const std::vector<DataType> types = {DataType::fp32, DataType::bf16, DataType::fp16};
  return types;
}

// ---- linear layers ----

inline void check_matmul(Device& device, MatmulShape s, DataType type, DataType result) {
  KernelHarness h(device);
  const Values x = random_values(s.m * s.k, 1, type);
  const Values weight = random_values(s.n * s.k, 2, type);
  const Values bias = random_values(s.n, 3, type);
  const Tensor dx_ = h.upload(x, type);
  const Tensor w_ = h.upload(weight, type);
  const Tensor y_ = h.upload(random_values(s.m * s.n, 9, result), result);
  h.run(Op::matmul, {s.m, s.n, s.k}, {dx_, w_, h.upload(bias, type), y_});
  expect_close("y with bias", h.download(y_), matmul(x, weight, bias, s), result);
  h.run(Op::matmul, {s.m, s.n, s.k}, {dx_, w_, Tensor{}, y_});
  expect_close("y", h.download(y_), matmul(x, weight, {}, s), result);
}

inline void check_matmul_backward(Device& device, MatmulShape s, DataType type, DataType gradients) {
  KernelHarness h(device);
  const Values x = random_values(s.m * s.k, 1, type);
  const Values weight = random_values(s.n * s.k, 2, type);
  const Values dy = random_values(s.m * s.n, 3, type);
  Values dx(x.size());
  Values dw(weight.size());
  Values db(index(s.n));
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < s.n; ++j) {
      const double up = dy[index(i * s.n + j)];
      db[index(j)] += up;
      for (std::int64_t l = 0; l < s.k; ++l) {
        dx[index(i * s.k + l)] += up * weight[index(j * s.k + l)];
        dw[index(j * s.k + l)] += up * x[index(i * s.k + l)];
      }
    }
  }
  const Tensor dy_ = h.upload(dy, type);
  const Tensor w_ = h.upload(weight, type);
  const Values before = random_values(s.m * s.k, 4, type);
  const Tensor dx_ = h.upload(before, type);
  h.run(Op::matmul_input_gradient, {s.m, s.n, s.k}, {dy_, w_, dx_});
  expect_close("dx added", h.download(dx_), sum(before, dx), type);
  h.run(Op::matmul_input_gradient, {s.m, s.n, s.k}, {dy_, w_, dx_}, kOverwrite);
  expect_close("dx", h.download(dx_), dx, type);

  const Values dw_before = random_values(s.n * s.k, 5, gradients);
  const Values db_before = random_values(s.n, 6, gradients);
  const Tensor dw_ = h.upload(dw_before, gradients);
  const Tensor db_ = h.upload(db_before, gradients);
  const Tensor x_ = h.upload(x, type);
  h.run(Op::matmul_weight_gradient, {s.m, s.n, s.k}, {dy_, x_, dw_, db_});
  expect_close("dW added", h.download(dw_), sum(dw_before, dw), gradients);
  expect_close("db added", h.download(db_), sum(db_before, db), gradients);
  h.run(Op::matmul_weight_gradient, {s.m, s.n, s.k}, {dy_, x_, dw_, Tensor{}});
  expect_close("dW twice", h.download(dw_), sum(sum(dw_before, dw), dw), gradients);
}

// ---- embedding ----

// Tokens 0 to 11 in a fixed mixture, of which the device has six rows.
inline void check_embedding(Device& device, std::int64_t count, std::int64_t width, std::int64_t first_row,
                            DataType type) {
  KernelHarness h(device);
  const std::int64_t sequence = 5;
  const std::int64_t rows = 6;
  std::vector<std::int32_t> tokens;
  for (const double value : random_values(count, 6)) {
    tokens.push_back(static_cast<std::int32_t>(6 + 6 * value));
  }
  const Values table = random_values(rows * width, 1, type);
  const Values positions = random_values(9 * width, 2, type);  // more than the sequence has
  const Values dx = random_values(count * width, 3, type);
  Values out(dx.size());
  Values d_table(table.size());
  Values d_positions(positions.size());
  for (std::int64_t t = 0; t < count; ++t) {
    const std::int64_t row = tokens[index(t)] - first_row;
    for (std::int64_t i = 0; i < width; ++i) {
      if (row >= 0 && row < rows) {
        out[index(t * width + i)] += table[index(row * width + i)];
        d_table[index(row * width + i)] += dx[index(t * width + i)];
      }
      // The first tensor-parallel rank adds positions; all of them hold and train them.
      d_positions[index(t % sequence * width + i)] += dx[index(t * width + i)];
      if (first_row == 0) {
        out[index(t * width + i)] += positions[index(t % sequence * width + i)];
      }
    }
  }
  const Tensor tokens_ = h.upload_integers(tokens);
  const Tensor out_ = h.upload(dx, type);
  const std::array<std::int64_t, 4> dims = {count, width, rows, first_row};
  h.run(Op::embedding_forward, dims, {tokens_, h.upload(table, type), h.upload(positions, type), out_}, 0,
        sequence);
  expect_close("embedding", h.download(out_), out, type);

  const Tensor d_table_ = h.upload(table, DataType::fp32);
  const Tensor d_positions_ = h.upload(positions, type);
  h.run(Op::embedding_backward, dims, {h.upload(dx, type), tokens_, d_table_, d_positions_}, 0, sequence);
  expect_close("d table", h.download(d_table_), sum(table, d_table), DataType::fp32);
  expect_close("d positions", h.download(d_positions_), sum(positions, d_positions), type);
}

inline void check_rotary(Device& device, std::int64_t head_dim, DataType type) {
  KernelHarness h(device);
  h.settings.model.rotary.base = 100;
  const std::int64_t sequence = 7;
  const std::int64_t heads = 3;
  const std::int64_t stride = 5 * head_dim;
  const Values x = random_values(2 * sequence * stride, 1, type);
  const Tensor x_ = h.upload(x, type);
  h.run(Op::rotary_forward, {2 * sequence, heads, head_dim}, {x_}, 0, sequence);
  expect_close("turned", h.download(x_), rotary(x, sequence, heads, head_dim, stride, 100), type);
  const Values dy = random_values(2 * sequence * stride, 2, type);
  const Tensor dy_ = h.upload(dy, type);
  h.run(Op::rotary_backward, {2 * sequence, heads, head_dim}, {dy_}, 0, sequence);
  const auto loss = [&](const Values& moved) {
    return dot(dy, rotary(moved, sequence, heads, head_dim, stride, 100));
  };
  expect_close("turned back", h.download(dy_), numeric_gradient(x, loss), type);
}

// ---- MLP and residual ----

inline void check_activation(Device& device, ActivationKind kind, std::int64_t rows, std::int64_t width,
                             DataType type) {
  KernelHarness h(device);
  const std::int64_t before_count = rows * width * (is_gated(kind) ? 2 : 1);
  const auto extra = static_cast<std::int64_t>(kind);
  Values before = random_values(before_count, 1, type, 4);
  before.front() = -60;  // far in a tail
  const Values dy = random_values(rows * width, 2, type);
  const Tensor before_ = h.upload(before, type);
  const Tensor after_ = h.zeros(dy.size(), type);
  h.run(Op::activation_forward, {rows, width}, {before_, after_}, 0, extra);
  expect_close("activation", h.download(after_), activate(before, kind, rows, width), type);
  const Values gradient = numeric_gradient(
      before, [&](const Values& moved) { return dot(dy, activate(moved, kind, rows, width)); });
  const Tensor apart = h.zeros(before.size(), type);
  h.run(Op::activation_backward, {rows, width}, {h.upload(dy, type), before_, apart}, 0, extra);
  expect_close("gradient", h.download(apart), gradient, type);
  h.run(Op::activation_backward, {rows, width}, {h.upload(dy, type), before_, before_}, 0, extra);
  expect_close("gradient in place", h.download(before_), gradient, type);
}

inline void check_residual(Device& device, std::int64_t hidden, bool bias, DataType type) {
  const std::int64_t tokens = 7;
  KernelHarness h(device);
  const Values branch = random_values(tokens * hidden, 1, type);
  const Values shift = bias ? random_values(hidden, 2, type) : Values(index(hidden));
  const Values residual = random_values(tokens * hidden, 3, type);
  Values out = sum(branch, residual);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] += shift[i % index(hidden)];
  const Tensor shift_ = bias ? h.upload(shift, type) : Tensor{};
  const Tensor branch_ = h.upload(branch, type);
  const Tensor residual_ = h.upload(residual, type);
  const Tensor out_ = h.zeros(out.size(), type);
  for (const Tensor& to : {out_, branch_, residual_}) {
    h.run(Op::residual_add, {tokens, hidden}, {branch_, shift_, residual_, Tensor{}, to});
    expect_close("sum", h.download(to), out, type);
    h.store(branch_, branch);
  }
}

// Bytes of a mask.
inline Values download_mask(Device& device, const Tensor& mask) {
  std::vector<std::byte> bytes(index(mask.elements));
  device.download(bytes, mask.data);
  Values values;
  for (const std::byte byte : bytes) values.push_back(static_cast<double>(byte));
  return values;
}

// Masks are those of dropout.hpp, whose generator is held to published numbers: with vectors and without, alone and on
// the way to a residual sum, drawn a second time and, for another step or key, others.
inline void check_mask(Device& device, std::int64_t hidden, DataType type, const MaskNumbers& numbers) {
  KernelHarness h(device);
  h.settings.step = 5;
  h.settings.dropout = 0.25F;
  const std::int64_t tokens = 31;
  const std::int64_t count = tokens * hidden;
  const Values x = random_values(count, 1, type);
  const Values residual = random_values(count, 2, type);
  const Values bias = random_values(hidden, 3, type);
  const std::uint64_t key = dropout_key(3, "mask", 5);
  const auto mask_of = [&](std::uint64_t of_key, std::uint32_t step) {
    const Dropout dropout({of_key, {}}, 0.25F);
    Values mask;
    for (std::uint64_t i = 0; i < index(count); ++i) {
      const std::uint64_t parts = numbers.part == 0 ? 0 : i / numbers.part;
      const std::uint64_t number = numbers.first + parts * numbers.whole + i - parts * numbers.part;
      mask.push_back(static_cast<double>(dropout.kept_of_four(number / 4, step) >> (number % 4) & 1U));
    }
    return mask;
  };
  const Values want_mask = mask_of(key, 5);
  CHECK(want_mask != mask_of(key, 6));
  CHECK(want_mask != mask_of(key + 1, 5));
  Values dropped = x;
  Values sum_with_bias = residual;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double factor = want_mask[i] * 4 / 3;
    dropped[i] = x[i] * factor;
    sum_with_bias[i] += (x[i] + bias[i % index(hidden)]) * factor;
  }
  const Tensor x_ = h.upload(x, type);
  const Tensor y_ = h.zeros(x.size(), type);
  const Tensor mask_ = h.zeros(x.size(), DataType::uint8);
  Kernel kernel;
  kernel.mask = {key, numbers};
  kernel.op = Op::dropout_forward;
  kernel.dims = {count};
  kernel.operands = {x_, mask_, y_};
  h.run(kernel);
  CHECK(download_mask(device, mask_) == want_mask);
  expect_close("dropped", h.download(y_), dropped, type);
  const Tensor dy_ = h.upload(x, type);
  h.run(Op::dropout_backward, {count}, {mask_, dy_});
  expect_close("dy", h.download(dy_), dropped, type);
  h.run(Op::residual_backward, {tokens, hidden}, {x_, mask_, y_});
  expect_close("d branch", h.download(y_), dropped, type);

  if (numbers.part != 0) return;  // ranks divide no mask of the residual stream
  const Tensor other_mask_ = h.zeros(x.size(), DataType::uint8);
  kernel.op = Op::residual_add;
  kernel.dims = {tokens, hidden};
  kernel.operands = {x_, h.upload(bias, type), h.upload(residual, type), other_mask_, y_};
  h.run(kernel);
  CHECK(download_mask(device, other_mask_) == want_mask);
  expect_close("sum", h.download(y_), sum_with_bias, type);
}

// Numbers that begin where fours do and where they do not, far from 0, and those of a mask that ranks divide.
inline void check_dropout(Device& device, std::int64_t hidden, DataType type) {
  const std::uint64_t row = index(hidden);
  const std::vector<MaskNumbers> all{{},
                                     {.first = (std::uint64_t{1} << 36U) + 4},
                                     {.first = 3},
                                     {.first = row, .part = row, .whole = 3 * row},
                                     {.first = 4 * 5 * row, .part = row, .whole = 4 * row},
                                     {.first = 12, .part = 7, .whole = 9}};
  for (const MaskNumbers& numbers : all) {
    CAPTURE(numbers.first);
    CAPTURE(numbers.part);
    check_mask(device, hidden, type, numbers);
  }
}

// ---- attention ----

struct AttentionInputs {
  Values packed, query_key, dy;  // query_key: empty, or rows of query and key heads
};

inline AttentionInputs attention_inputs(const AttentionShape& s, bool normed, DataType type) {
  AttentionInputs inputs;
  inputs.packed = random_values(s.tokens() * s.packed(), 1, type, 2);
  if (normed) inputs.query_key = random_values(s.tokens() * (s.heads + s.kv_heads) * s.head_dim, 2, type, 2);
  inputs.dy = random_values(s.tokens() * s.context(), 3, type);
  return inputs;
}

// The gradient in qkv's layout of every `every`-th element, the others NaN.
inline Values attention_gradient(const AttentionShape& s, const AttentionInputs& inputs, std::size_t every) {
  Values gradient(index(s.tokens() * s.packed()), std::numeric_limits<double>::quiet_NaN());
  AttentionInputs moved = inputs;
  const std::int64_t turned = (s.heads + s.kv_heads) * s.head_dim;
  for (std::size_t i = 0; i < gradient.size(); i += every) {
    const auto token = static_cast<std::int64_t>(i) / s.packed();
    const auto column = static_cast<std::int64_t>(i) % s.packed();
    const bool from_normed = !inputs.query_key.empty() && column < turned;
    double& element = from_normed ? moved.query_key[index(token * turned + column)] : moved.packed[i];
    const double here = element;
    element = here + 1e-5;
    const double above = dot(inputs.dy, attention(moved.packed, moved.query_key, s).context);
    element = here - 1e-5;
    gradient[i] = (above - dot(inputs.dy, attention(moved.packed, moved.query_key, s).context)) / 2e-5;
    element = here;
  }
  return gradient;
}

inline void expect_sampled(const std::string& what, Values got, const Values& want, DataType type) {
  Values sampled;
  Values expected;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i])) continue;
    sampled.push_back(got[i]);
    expected.push_back(want[i]);
  }
  expect_close(what, sampled, expected, 2 * tolerance(type));
}

inline void check_flash_attention(Device& device, const AttentionShape& s, bool normed, std::size_t every,
                                  DataType type) {
  KernelHarness h(device);
  h.settings.model = s.model;
  const AttentionInputs inputs = attention_inputs(s, normed, type);
  const AttentionResult want = attention(inputs.packed, inputs.query_key, s);
  const std::array<std::int64_t, 4> dims = {s.sequences, s.sequence, s.heads, s.head_dim};
  const Tensor packed = h.upload(inputs.packed, type);
  const Tensor query_key = normed ? h.upload(inputs.query_key, type) : Tensor{};
  const Tensor context = h.zeros(want.context.size(), type);
  const Tensor log_sum_exp = h.zeros(want.log_sum_exp.size(), DataType::fp32);
  h.run(Op::attention_forward, dims, {packed, query_key, context, log_sum_exp}, 0, s.kv_heads);
  expect_close("context", h.download(context), want.context, type);
  expect_close("log-sum-exp", h.download(log_sum_exp), want.log_sum_exp, DataType::fp32);

  const Tensor dy = h.upload(inputs.dy, type);
  const Tensor dots = h.zeros(want.log_sum_exp.size(), DataType::fp32);
  h.run(Op::attention_row_dot, dims, {dy, context, dots}, 0, s.kv_heads);
  Values want_dots(want.log_sum_exp.size());
  const Values got_context = h.download(context);
  for (std::size_t i = 0; i < got_context.size(); ++i) {
    want_dots[i / index(s.head_dim)] += inputs.dy[i] * got_context[i];
  }
  expect_close("row dots", h.download(dots), want_dots, DataType::fp32);
  const Tensor gradient = h.upload(Values(inputs.packed.size(), 7.0), type);
  h.run(Op::attention_backward, dims, {dy, packed, query_key, log_sum_exp, dots, gradient}, 0, s.kv_heads);
  expect_sampled("dqkv", h.download(gradient), attention_gradient(s, inputs, every), type);
}

// `wide`: scores in fp32 in a buffer of their own.
inline void check_materialized_attention(Device& device, const AttentionShape& s, bool normed, bool wide,
                                         std::size_t every, DataType type) {
  KernelHarness h(device);
  h.settings.model = s.model;
  const AttentionInputs inputs = attention_inputs(s, normed, type);
  const AttentionResult want = attention(inputs.packed, inputs.query_key, s);
  const std::array<std::int64_t, 4> dims = {s.sequences, s.sequence, s.heads, s.head_dim};
  const std::array<std::int64_t, 4> rows = {s.sequences * s.heads * s.sequence, s.sequence};
  const Tensor packed = h.upload(inputs.packed, type);
  const Tensor query_key = normed ? h.upload(inputs.query_key, type) : Tensor{};
  const Tensor probabilities = h.zeros(want.scores.size(), type);
  const Tensor scores = wide ? h.zeros(want.scores.size(), DataType::fp32) : probabilities;
  const Tensor context = h.zeros(want.context.size(), type);
  h.run(Op::attention_scores, dims, {packed, query_key, scores}, 0, s.kv_heads);
  expect_close("scores", h.download(scores), want.scores, scores.type);
  h.run(Op::softmax_forward, rows, {scores, probabilities});
  const double loss = type == DataType::fp32 ? 1 : 4;  // scores of 16 bits are off before they are exponents
  expect_close("probabilities", h.download(probabilities), want.probabilities, loss * tolerance(type));
  h.run(Op::attention_values, dims, {probabilities, packed, context}, 0, s.kv_heads);
  expect_close("context", h.download(context), want.context, loss * tolerance(type));

  const Tensor dy = h.upload(inputs.dy, type);
  const Tensor d_scores = h.upload(Values(want.scores.size(), 7.0), type);
  const Tensor gradient = h.upload(Values(inputs.packed.size(), 7.0), type);
  h.run(Op::attention_values_backward, dims, {dy, probabilities, packed, d_scores, gradient}, 0, s.kv_heads);
  h.run(Op::softmax_backward, rows, {probabilities, d_scores});
  h.run(Op::attention_scores_backward, dims, {d_scores, packed, query_key, gradient}, 0, s.kv_heads);
  const Values expected = attention_gradient(s, inputs, every);
  Values got = h.download(gradient);
  if (type == DataType::fp32) {
    expect_sampled("dqkv", got, expected, type);
  } else {  // every tensor on the way was rounded
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (!std::isnan(expected[i]))
        CHECK(std::fabs(got[i] - expected[i]) < (type == DataType::fp16 ? 0.01 : 0.08));
    }
  }
}

// ---- loss ----

// Two tensor-parallel ranks, each with half of the vocabulary and padding behind the second's.
inline void check_cross_entropy(Device& device, std::int64_t columns, DataType logits_type,
                                DataType gradient_type, bool in_place) {
  KernelHarness h(device);
  h.settings.tokens_per_step = 10;
  const std::int64_t vocabulary = 2 * columns - 3;
  const std::vector<std::int32_t> targets = {0, static_cast<std::int32_t>(vocabulary - 1), 8, -100, 9, 3, 7};
  const auto tokens = static_cast<std::int64_t>(targets.size());
  Values logits = random_values(tokens * 2 * columns, 1, logits_type, 6);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t i = vocabulary; i < 2 * columns; ++i)
      logits[index(t * 2 * columns + i)] = 100;  // padding
  }
  const Tensor targets_ = h.upload_integers(targets);
  Values scalars(index(program::kScalars));
  scalars[static_cast<std::size_t>(Scalar::loss)] = 0.25;
  scalars[static_cast<std::size_t>(Scalar::loss_scale)] = 8;
  const Tensor scalars_ = h.upload(scalars, DataType::fp32);
  Tensor halves[2];
  Values maxima[2];
  Values sums[2];
  Values dims_of[2];
  const Tensor maximum = h.zeros(index(tokens), DataType::fp32);
  const Tensor pair = h.zeros(index(2 * tokens), DataType::fp32);
  const auto dims = [&](std::int64_t rank) {
    return std::array<std::int64_t, 4>{tokens, columns, rank * columns,
                                       std::min(columns, vocabulary - rank * columns)};
  };
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    Values half;
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t i = 0; i < columns; ++i) half.push_back(logits[index((2 * t + rank) * columns + i)]);
    }
    halves[rank] = h.upload(half, logits_type);
    h.run(Op::cross_entropy_maximum, dims(rank), {halves[rank], maximum});
    maxima[rank] = h.download(maximum);
  }
  for (std::size_t t = 0; t < targets.size(); ++t) maxima[0][t] = std::max(maxima[0][t], maxima[1][t]);
  h.store(maximum, maxima[0]);
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    h.run(Op::cross_entropy_exponent, dims(rank), {halves[rank], targets_, maximum, pair});
    sums[rank] = h.download(pair);
  }
  h.store(pair, sum(sums[0], sums[1]));
  h.run(Op::cross_entropy_loss, {tokens}, {maximum, pair, scalars_});
  const double loss = cross_entropy(logits, targets, 2 * columns, vocabulary) / 10;
  CHECK(h.download(scalars_).front() == doctest::Approx(0.25 + loss).epsilon(1e-6));

  const Values gradient = numeric_gradient(logits, [&](const Values& moved) {
    return 8 * cross_entropy(moved, targets, 2 * columns, vocabulary) / 10;
  });
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    const Tensor to = in_place ? halves[rank] : h.zeros(index(tokens * columns), gradient_type);
    h.run(Op::cross_entropy_backward, dims(rank), {halves[rank], targets_, maximum, pair, scalars_, to});
    Values want;
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t i = 0; i < columns; ++i)
        want.push_back(gradient[index((2 * t + rank) * columns + i)]);
    }
    const Values got = h.download(to);
    expect_close("d logits", got, want, gradient_type);
    for (std::size_t i = 0; i < index(columns); ++i)
      CHECK(got[3 * index(columns) + i] == 0);           // the ignored token
    if (rank == 1) CHECK(got[index(columns) - 1] == 0);  // padding
  }
}

}  // namespace zeroplan::executor::test
