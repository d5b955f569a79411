#pragma once

#include "tests/executor/kernel_table.hpp"

// Cases of the table for norms.
namespace zeroplan::executor::test {

inline void check_norm(Device& device, NormShape s, bool bias, DataType type) {
  KernelHarness h(device);
  h.settings.model.norm_epsilon = s.epsilon;
  const Values x = sum(random_values(s.rows * s.width, 1, type), Values(index(s.rows * s.width), 0.5));
  const Values parameters = random_values(s.width * (bias ? 2 : 1), 2, type);
  const Values dy = random_values(s.rows * s.width, 3, type);
  const Values before = random_values(s.rows * s.width, 4, type);
  const Values gradient_before = random_values(s.width * (bias ? 2 : 1), 5, DataType::fp32);
  Values rounded_x = x;
  for (double& value : rounded_x) value = rounded(value, type);

  const Tensor x_ = h.upload(rounded_x, type);
  const Tensor p_ = h.upload(parameters, type);
  const Tensor y_ = h.zeros(x.size(), type);
  const Tensor statistics_ = h.zeros(index(s.rows * (s.layer_norm ? 2 : 1)), DataType::fp32);
  h.run(Op::norm_forward, {s.rows, s.width}, {x_, p_, y_, statistics_});
  expect_close("y", h.download(y_), norm(rounded_x, parameters, s), type);

  const Values dx =
      numeric_gradient(rounded_x, [&](const Values& moved) { return dot(dy, norm(moved, parameters, s)); });
  const Values dp =
      numeric_gradient(parameters, [&](const Values& moved) { return dot(dy, norm(rounded_x, moved, s)); });
  const Tensor dy_ = h.upload(dy, type);
  const Tensor dx_ = h.upload(before, type);
  const Tensor dp_ = h.upload(gradient_before, DataType::fp32);
  const std::array<std::int64_t, 4> dims = {s.rows, s.width};
  h.run(Op::norm_backward, dims, {dy_, x_, p_, statistics_, dx_, dp_});
  expect_close("dx added", h.download(dx_), sum(before, dx), type);
  expect_close("d parameters added", h.download(dp_), sum(gradient_before, dp), 2e-5);
  h.run(Op::norm_backward, dims, {dy_, x_, p_, statistics_, dx_, dp_}, kOverwrite);
  expect_close("dx", h.download(dx_), dx, type);
  const Tensor over_dy = h.upload(dy, type);
  h.run(Op::norm_backward, dims, {over_dy, x_, p_, statistics_, over_dy, dp_}, kOverwrite);
  expect_close("dx over dy", h.download(over_dy), dx, type);
  const Tensor fresh = h.zeros(dp.size(), type);
  h.run(Op::norm_backward, dims, {dy_, x_, p_, statistics_, x_, fresh}, kOverwrite);
  expect_close("dx over x", h.download(x_), dx, type);
  expect_close("d parameters", h.download(fresh), dp, std::max(tolerance(type), 2e-5));
}

// dx and the parameters' gradients, as formulas in double precision: for rows that are too long for numeric_gradient.
struct NormGradients {
  Values dx, parameters;
};
inline NormGradients norm_gradients(const Values& x, const Values& parameters, const Values& dy,
                                    NormShape s) {
  NormGradients result{Values(x.size()), Values(parameters.size())};
  const auto width = static_cast<double>(s.width);
  for (std::int64_t row = 0; row < s.rows; ++row) {
    const double* in = x.data() + row * s.width;
    const double* up = dy.data() + row * s.width;
    double mean = 0;
    double variance = 0;
    double mean_g = 0;
    double mean_gn = 0;
    for (std::int64_t i = 0; s.layer_norm && i < s.width; ++i) mean += in[i] / width;
    for (std::int64_t i = 0; i < s.width; ++i) variance += (in[i] - mean) * (in[i] - mean) / width;
    const double scale = 1 / std::sqrt(variance + s.epsilon);
    for (std::int64_t i = 0; i < s.width; ++i) {
      const double normed = (in[i] - mean) * scale;
      mean_g += (s.layer_norm ? up[i] * parameters[index(i)] : 0) / width;
      mean_gn += up[i] * parameters[index(i)] * normed / width;
      result.parameters[index(i)] += up[i] * normed;
      if (parameters.size() == 2 * index(s.width)) result.parameters[index(s.width + i)] += up[i];
    }
    for (std::int64_t i = 0; i < s.width; ++i) {
      result.dx[index(row * s.width + i)] =
          scale * (up[i] * parameters[index(i)] - mean_g - (in[i] - mean) * scale * mean_gn);
    }
  }
  return result;
}

inline void check_wide_norm(Device& device, NormShape s, DataType type) {
  KernelHarness h(device);
  h.settings.model.norm_epsilon = s.epsilon;
  const Values x = random_values(s.rows * s.width, 1, type);
  const Values parameters = random_values(2 * s.width, 2, type);
  const Values dy = random_values(s.rows * s.width, 3, type);
  const Tensor x_ = h.upload(x, type);
  // A view that begins at no multiple of 16 bytes, as those of a partition may.
  Values behind_one = parameters;
  behind_one.insert(behind_one.begin(), 0.0);
  Tensor p_ = h.upload(behind_one, type);
  p_.data += program::bytes_of(type);
  p_.elements -= 1;
  const Tensor y_ = h.zeros(x.size(), type);
  const Tensor statistics_ = h.zeros(index(s.rows * (s.layer_norm ? 2 : 1)), DataType::fp32);
  const std::array<std::int64_t, 4> dims = {s.rows, s.width};
  h.run(Op::norm_forward, dims, {x_, p_, y_, statistics_});
  expect_close("y", h.download(y_), norm(x, parameters, s), type);
  const NormGradients want = norm_gradients(x, parameters, dy, s);
  const Tensor dx_ = h.upload(dy, type);
  const Tensor dp_ = h.zeros(parameters.size(), DataType::fp32);
  h.run(Op::norm_backward, dims, {dx_, x_, p_, statistics_, dx_, dp_}, kOverwrite);
  expect_close("dx over dy", h.download(dx_), want.dx, type);
  expect_close("d parameters", h.download(dp_), want.parameters, 2e-5);
}

// Rows that are heads of tokens: query heads first, key heads behind them, values that stay as they are.
inline void check_head_norm(Device& device, std::int64_t head_dim, DataType type) {
  KernelHarness h(device);
  h.settings.model.norm_weight_offset = 1;
  const std::int64_t tokens = 5;
  const std::int64_t queries = 3;
  const std::int64_t keys = 2;
  const std::int64_t stride = (queries + 2 * keys) * head_dim;
  const Values x = random_values(tokens * stride, 1, type);
  const Values dy = random_values(tokens * stride, 2, type);
  Values y = random_values(tokens * stride, 3, type);
  Values dx = random_values(tokens * stride, 4, type);
  const Tensor x_ = h.upload(x, type);
  const Tensor y_ = h.upload(y, type);
  const Tensor dy_ = h.upload(dy, type);
  const Tensor dx_ = h.upload(dx, type);
  const Tensor statistics_ = h.zeros(index(tokens * (queries + keys)), DataType::fp32);
  std::array<Tensor, 2> gradients;
  std::array<Values, 2> want_gradients;
  for (const std::size_t part : {0U, 1U}) {
    const std::int64_t heads = part == 0 ? queries : keys;
    const std::int64_t first = part == 0 ? 0 : queries * head_dim;
    const NormShape shape{tokens * heads, head_dim, false, h.settings.model.norm_epsilon};
    const Values weight = random_values(head_dim, static_cast<unsigned>(5 + part), type);
    Values effective = weight;
    for (double& one : effective) one += 1;
    Values rows;
    Values up;
    std::vector<std::size_t> places;
    for (std::int64_t token = 0; token < tokens; ++token) {
      for (std::int64_t i = 0; i < heads * head_dim; ++i) {
        places.push_back(index(token * stride + first + i));
        rows.push_back(x[places.back()]);
        up.push_back(dy[places.back()]);
      }
    }
    const Values normed = norm(rows, effective, shape);
    const NormGradients back = norm_gradients(rows, effective, up, shape);
    for (std::size_t i = 0; i < places.size(); ++i) {
      y[places[i]] = normed[i];
      dx[places[i]] += back.dx[i];
    }
    want_gradients[part] = back.parameters;
    gradients[part] = h.zeros(weight.size(), DataType::fp32);
    const Tensor p_ = h.upload(weight, type);
    const std::array<std::int64_t, 4> dims = {shape.rows, head_dim, heads, first};
    h.run(Op::norm_forward, dims, {x_, p_, y_, statistics_});
    h.run(Op::norm_backward, dims, {dy_, x_, p_, statistics_, dx_, gradients[part]});
  }
  expect_close("y", h.download(y_), y, type);
  expect_close("dx added", h.download(dx_), dx, type);
  for (const std::size_t part : {0U, 1U})
    expect_close("d weight", h.download(gradients[part]), want_gradients[part], 2e-5);
}

}  // namespace zeroplan::executor::test
