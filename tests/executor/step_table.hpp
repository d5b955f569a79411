#pragma once

#include "executor/norm_parts.hpp"
#include "tests/executor/norm_table.hpp"

// Cases of the table for data movement and the optimizer step.
namespace zeroplan::executor::test {

inline void check_movement(Device& device, std::int64_t count, DataType from, DataType to) {
  KernelHarness h(device);
  const Values in = random_values(count, 1, from, 3);
  const Values out = random_values(count, 2, to);
  const Tensor in_ = h.upload(in, from);
  const Tensor out_ = h.upload(out, to);
  Values total(in.size());
  Values converted(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    total[i] = rounded(rounded(in[i] + out[i], DataType::fp32), to);
    converted[i] = rounded(in[i], to);
  }
  h.run(Op::accumulate, {count}, {in_, out_});
  CHECK(h.download(out_) == total);
  h.run(Op::copy, {count}, {in_, out_});
  CHECK(h.download(out_) == converted);
  h.run(Op::fill_zero, {count}, {out_});
  CHECK(h.download(out_) == Values(out.size()));
}

// Every pattern of a 16-bit type to fp32 and back, and every midpoint between neighbours.
inline void check_conversions(Device& device, DataType type) {
  KernelHarness h(device);
  Values all;
  for (std::int64_t pattern = 0; pattern < 0x10000; ++pattern) {
    const double value = value_of(static_cast<std::uint16_t>(pattern), type);
    if (!std::isnan(value)) all.push_back(value);
  }
  const Tensor narrow_ = h.upload(all, type);
  const Tensor wide = h.zeros(all.size(), DataType::fp32);
  const auto count = static_cast<std::int64_t>(all.size());
  h.run(Op::copy, {count}, {narrow_, wide});
  CHECK(h.download(wide) == all);

  Values between;
  Values expected;
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    const double middle = std::isfinite(all[i] + all[i + 1]) ? (all[i] + all[i + 1]) / 2 : all[i];
    for (const double value : {middle, middle * (1 - 1e-6), middle * (1 + 1e-6)}) {
      between.push_back(rounded(value, DataType::fp32));
      expected.push_back(rounded(between.back(), type));
    }
  }
  between.push_back(std::numeric_limits<double>::quiet_NaN());
  const auto more = static_cast<std::int64_t>(between.size());
  const Tensor results = h.zeros(between.size(), type);
  h.run(Op::copy, {more}, {h.upload(between, DataType::fp32), results});
  Values got = h.download(results);
  CHECK(std::isnan(got.back()));
  got.pop_back();
  CHECK(got == expected);
}

inline Values make_scalars(double loss_scale, double squared_norm = 0, double overflow = 0,
                           double good_steps = 0) {
  Values scalars(index(program::kScalars));
  scalars[static_cast<std::size_t>(Scalar::loss_scale)] = loss_scale;
  const NormParts parts = norm_parts(squared_norm);
  std::copy(parts.begin(), parts.end(), scalars.begin() + static_cast<std::size_t>(Scalar::norm_parts));
  scalars[static_cast<std::size_t>(Scalar::overflow)] = overflow;
  scalars[static_cast<std::size_t>(Scalar::good_steps)] = good_steps;
  return scalars;
}

inline double scalar_of(const Values& scalars, Scalar which) {
  return scalars[static_cast<std::size_t>(which)];
}

inline void check_gradient_norm(Device& device, DataType type) {
  KernelHarness h(device);
  const std::int64_t count = 70001;  // more than one task
  const std::int64_t distinct = 65000;
  Values gradient = random_values(count, 1, type);
  double own = 0;
  double all = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double square = gradient[index(i)] * gradient[index(i)] / 16;
    all += square;
    if (i < distinct) own += square;
  }
  const Tensor gradient_ = h.upload(gradient, type);
  for (const bool counts : {true, false}) {
    const Tensor scalars = h.upload(make_scalars(4, 2.5), DataType::fp32);
    Kernel kernel;
    kernel.op = Op::gradient_norm;
    kernel.dims = {count, distinct};
    kernel.counts_replicated = counts;
    kernel.operands = {gradient_, scalars};
    h.run(kernel);
    const Values after = h.download(scalars);
    double norm = 0;
    for (std::size_t i = 0; i < program::kNormParts; ++i) {
      norm += after[static_cast<std::size_t>(Scalar::norm_parts) + i];
    }
    CHECK(norm == doctest::Approx(2.5 + (counts ? all : own)).epsilon(1e-6));
    CHECK(scalar_of(after, Scalar::overflow) == 0);
  }
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    for (const std::int64_t place : {std::int64_t{0}, distinct, count - 1}) {
      Values poisoned = gradient;
      poisoned[index(place)] = bad;
      const Tensor scalars = h.upload(make_scalars(4), DataType::fp32);
      h.run(Op::gradient_norm, {count, distinct}, {h.upload(poisoned, type), scalars});
      CHECK(scalar_of(h.download(scalars), Scalar::overflow) > 0);
    }
  }
}

inline void check_scale_update(Device& device) {
  KernelHarness h(device);
  h.settings.dynamic_loss_scale = true;
  h.settings.scale_window = 3;
  const auto after = [&](const Values& before) {
    const Tensor scalars = h.upload(before, DataType::fp32);
    h.run(Op::scale_update, {}, {scalars});
    return h.download(scalars);
  };
  const Values good = after(make_scalars(1024, 1, 0, 1));
  CHECK(scalar_of(good, Scalar::loss_scale) == 1024);
  CHECK(scalar_of(good, Scalar::good_steps) == 2);
  CHECK(scalar_of(good, Scalar::steps) == 1);
  CHECK(scalar_of(good, Scalar::squared_norm) == 1);
  const Values grown = after(good);
  CHECK(scalar_of(grown, Scalar::loss_scale) == 2048);
  CHECK(scalar_of(grown, Scalar::good_steps) == 0);
  const Values halved = after(make_scalars(1024, 1, 2, 2));
  CHECK(scalar_of(halved, Scalar::loss_scale) == 512);
  CHECK(scalar_of(halved, Scalar::good_steps) == 0);
  h.settings.dynamic_loss_scale = false;
  CHECK(scalar_of(after(make_scalars(1024, 1, 2, 2)), Scalar::loss_scale) == 1024);
  CHECK(scalar_of(after(make_scalars(1024, 1, 0, 2)), Scalar::loss_scale) == 1024);
}

struct OptimizerCase {
  std::size_t states = 2;
  DataType parameter = DataType::fp32;
  DataType gradient = DataType::fp32;
  bool overflow = false;
  std::int64_t count = 17, chunk = 5;
};

// One whole step as the program makes it: scale_update, then chunk by chunk gradient_to_fp32 and
// optimizer_update; the gradients carry a loss scale of 4, which an overflow halves, and are clipped from
// norm 3 to 1.
inline void check_optimizer(Device& device, const OptimizerCase& c) {
  KernelHarness h(device);
  StepSettings& settings = h.settings;
  settings.step = 3;
  settings.learning_rate = 0.125F;
  settings.weight_decay = 0.25F;
  settings.epsilon = 1e-3F;
  settings.clip_norm = 1;
  settings.dynamic_loss_scale = true;
  const auto count = index(c.count);
  const Values gradient = random_values(count, 1, c.gradient, 4);
  const Values weights = random_values(count, 2);
  Values states[2] = {random_values(count, 3), random_values(count, 4)};
  for (double& variance : states[1]) variance = std::fabs(variance);
  Values narrow_weights = weights;
  for (double& weight : narrow_weights) weight = rounded(weight, c.parameter);

  const Tensor scalars = h.upload(make_scalars(4, 9, c.overflow ? 1 : 0), DataType::fp32);
  const Tensor gradient_ = h.upload(gradient, c.gradient);
  const Tensor fp32 = h.zeros(index(c.chunk), DataType::fp32);
  const Tensor parameter = h.upload(narrow_weights, c.parameter);
  const Tensor master = c.parameter == DataType::fp32 ? Tensor{} : h.upload(weights, DataType::fp32);
  Tensor states_[2];
  for (std::size_t i = 0; i < c.states; ++i) states_[i] = h.upload(states[i], DataType::fp32);
  h.run(Op::scale_update, {}, {scalars});
  for (std::int64_t iteration = 0; iteration * c.chunk < c.count; ++iteration) {
    Kernel kernel;
    kernel.iteration = iteration;
    kernel.dims = {c.count, c.chunk};
    kernel.op = Op::gradient_to_fp32;
    kernel.operands = {gradient_, scalars, fp32};
    h.run(kernel);
    kernel.op = Op::optimizer_update;
    kernel.operands = {fp32, master, parameter, states_[0], states_[1]};
    h.run(kernel);
  }

  Values want = weights;
  for (std::size_t i = 0; i < count && !c.overflow; ++i) {
    const double g = gradient[i] / 4 / (3 + 1e-6);
    double change = g;
    if (c.states == 1) change = states[0][i] = 0.9 * states[0][i] + g;
    if (c.states == 2) {
      states[0][i] = 0.9 * states[0][i] + 0.1 * g;
      states[1][i] = 0.999 * states[1][i] + 0.001 * g * g;
      change =
          states[0][i] / (1 - std::pow(0.9, 3)) / (std::sqrt(states[1][i] / (1 - std::pow(0.999, 3))) + 1e-3);
    }
    want[i] = weights[i] - 0.125 * (change + 0.25 * weights[i]);
  }
  const double exact = c.overflow ? 0 : 1e-5;
  for (std::size_t i = 0; i < c.states; ++i) expect_close("state", h.download(states_[i]), states[i], exact);
  if (c.parameter == DataType::fp32) {
    expect_close("parameter", h.download(parameter), want, exact);
    return;
  }
  const Values got = h.download(master);
  expect_close("master", got, want, exact);
  Values narrow_got = got;
  for (double& weight : narrow_got) weight = rounded(weight, c.parameter);
  CHECK(h.download(parameter) == narrow_got);
}

// Every third to fifth weight does not decay, in more ranges than kernels look at together; gradients are 0.
inline void check_undecayed(Device& device, std::int64_t chunk) {
  KernelHarness h(device);
  h.settings.learning_rate = 0.5F;
  h.settings.weight_decay = 0.5F;
  const std::int64_t count = 200;
  std::vector<ElementRange> ranges;
  Values want(index(count), 0.75);
  for (std::int64_t begin = 3; begin < count; begin += 5) {
    ranges.push_back({begin, std::min(count, begin + 3)});
    for (std::int64_t i = begin; i < ranges.back().end; ++i) want[index(i)] = 1;
  }
  const Tensor weights = h.upload(Values(index(count), 1.0), DataType::fp32);
  for (std::int64_t iteration = 0; iteration * chunk < count; ++iteration) {
    Kernel kernel;
    kernel.op = Op::optimizer_update;
    kernel.iteration = iteration;
    kernel.dims = {count, chunk};
    kernel.operands = {h.zeros(index(chunk), DataType::fp32), Tensor{}, weights};
    kernel.undecayed = ranges;
    h.run(kernel);
  }
  CHECK(h.download(weights) == want);
}

// Windows shorter and longer than the kernels' blocks of queries and of keys, and what is done to scores.
inline std::vector<AttentionShape> attention_forms() {
  using Kind = program::AttentionWindow::Kind;
  const auto form = [](std::int64_t sequence, Kind kind, std::int64_t size) {
    AttentionShape shape{1, sequence, 3, 1, 3};
    shape.model.window.kind = kind;
    shape.model.window.size = size;
    return shape;
  };
  std::vector<AttentionShape> shapes;
  for (const std::int64_t size : {1, 5, 70, 290}) shapes.push_back(form(300, Kind::sliding, size));
  for (const std::int64_t size : {5, 70}) shapes.push_back(form(150, Kind::chunked, size));
  AttentionShape capped = form(90, Kind::none, 0);
  capped.model.attention_soft_cap = 0.8;
  capped.model.attention_scale = 0.9;
  shapes.push_back(capped);
  AttentionShape biased = form(90, Kind::none, 0);
  biased.model.alibi_heads = 6;
  biased.model.first_head = 3;
  shapes.push_back(biased);
  AttentionShape all = form(90, Kind::sliding, 40);
  all.model.attention_soft_cap = 2;
  all.model.alibi_heads = 3;
  shapes.push_back(all);
  return shapes;
}

inline KernelTable kernel_table() {
  KernelTable table;
  const auto add = [&](std::string name, std::function<void(Device&)> check) {
    table.push_back({std::move(name), std::move(check)});
  };
  for (const DataType type : real_types()) {
    const std::string suffix = std::string(" in ") + name_of_type(type);
    for (const MatmulShape s :
         {MatmulShape{1, 1, 1}, {3, 7, 17}, {17, 3, 1}, {7, 17, 3}, {5, 7, 800}, {270, 200, 260}}) {
      add("matmul" + suffix, [=](Device& d) { check_matmul(d, s, type, type); });
      add("matmul to fp32" + suffix, [=](Device& d) { check_matmul(d, s, type, DataType::fp32); });
      add("matmul backward" + suffix, [=](Device& d) { check_matmul_backward(d, s, type, type); });
      add("matmul backward to fp32" + suffix,
          [=](Device& d) { check_matmul_backward(d, s, type, DataType::fp32); });
    }
    for (const bool layer_norm : {true, false}) {
      for (const NormShape s : {NormShape{1, 1, layer_norm, 1e-2},
                                {3, 7, layer_norm, 1e-5},
                                {17, 3, layer_norm, 1e-2},
                                {35, 17, layer_norm, 1e-5},
                                {19, 24, layer_norm, 1e-5}}) {
        add("norm" + suffix, [=](Device& d) { check_norm(d, s, true, type); });
        add("norm without bias" + suffix, [=](Device& d) { check_norm(d, s, false, type); });
      }
    }
    // Rows that a warp, a block and several turns of a block have, with and without vectors of 16 bytes.
    for (const std::int64_t width : {520, 523, 1032, 8200, 8201, 16392}) {
      for (const bool layer_norm : {true, false}) {
        add("wide norm" + suffix, [=](Device& d) { check_wide_norm(d, {3, width, layer_norm, 1e-5}, type); });
      }
    }
    add("norm of many rows" + suffix, [=](Device& d) { check_wide_norm(d, {1031, 8, true, 1e-5}, type); });
    for (const std::int64_t head_dim : {3, 16})
      add("norm of heads" + suffix, [=](Device& d) { check_head_norm(d, head_dim, type); });
    for (const std::int64_t first_row : {0, 6}) {
      add("embedding" + suffix, [=](Device& d) { check_embedding(d, 15, 24, first_row, type); });
      for (const std::int64_t count : {1, 15, 200}) {  // 200 of width 700 are several tasks
        add("embedding" + suffix,
            [=](Device& d) { check_embedding(d, count, count == 200 ? 700 : 7, first_row, type); });
      }
    }
    for (const std::int64_t head_dim : {2, 6, 16, 34}) {
      add("rotary" + suffix, [=](Device& d) { check_rotary(d, head_dim, type); });
    }
    for (int kind = 0; kind < 8; ++kind) {
      for (const auto& [rows, width] : {std::pair{1, 1}, {3, 17}, {17, 7}, {3, 24}}) {
        add("activation" + suffix, [=, rows = rows, width = width](Device& d) {
          check_activation(d, static_cast<ActivationKind>(kind), rows, width, type);
        });
      }
    }
    for (const bool bias : {true, false}) {
      for (const std::int64_t hidden : {17, 24})
        add("residual" + suffix, [=](Device& d) { check_residual(d, hidden, bias, type); });
    }
    for (const AttentionShape& s :
         {AttentionShape{1, 1, 1, 1, 1}, {2, 7, 3, 3, 3}, {1, 17, 4, 2, 7}, {3, 3, 6, 1, 17}}) {
      for (const bool normed : {false, true}) {
        add("flash attention" + suffix, [=](Device& d) { check_flash_attention(d, s, normed, 1, type); });
        for (const bool wide : {false, true}) {
          add("materialized attention" + suffix,
              [=](Device& d) { check_materialized_attention(d, s, normed, wide, 1, type); });
        }
      }
    }
    const AttentionShape long_one{1, 300, 2, 1, 3};  // several blocks of queries and of keys
    add("flash attention, long" + suffix,
        [=](Device& d) { check_flash_attention(d, long_one, false, 89, type); });
    add("materialized attention, long" + suffix,
        [=](Device& d) { check_materialized_attention(d, long_one, false, true, 89, type); });
    for (const AttentionShape& s : attention_forms()) {
      add("flash attention in windows, capped, biased" + suffix,
          [=](Device& d) { check_flash_attention(d, s, false, 331, type); });
      if (type != DataType::fp32) continue;
      add("materialized attention in windows, capped, biased",
          [=](Device& d) { check_materialized_attention(d, s, false, false, 331, type); });
    }
    for (const std::int64_t hidden : {17, 24}) {
      add("dropout" + suffix, [=](Device& d) { check_dropout(d, hidden, type); });
    }
    for (const std::int64_t columns : {9, 16}) {
      add("cross-entropy, gradient" + suffix,
          [=](Device& d) { check_cross_entropy(d, columns, DataType::fp32, type, false); });
      add("cross-entropy in place" + suffix,
          [=](Device& d) { check_cross_entropy(d, columns, type, type, true); });
    }
    for (const DataType to : real_types()) {
      for (const std::int64_t count : {1, 3, 17, 70001}) {
        add("movement" + suffix, [=](Device& d) { check_movement(d, count, type, to); });
      }
    }
    if (type != DataType::fp32) add("conversions" + suffix, [=](Device& d) { check_conversions(d, type); });
    add("gradient norm" + suffix, [=](Device& d) { check_gradient_norm(d, type); });
    for (const std::size_t states : {0U, 1U, 2U}) {
      for (const bool overflow : {false, true}) {
        for (const std::int64_t chunk : {1, 5, 17}) {
          add("optimizer" + suffix, [=](Device& d) {
            check_optimizer(d, {states, type, type, overflow, 17, chunk});
          });
        }
        add("optimizer" + suffix, [=](Device& d) {
          check_optimizer(d, {states, type, type, overflow, 51, 24});
        });
      }
    }
  }
  add("scale update", check_scale_update);
  for (const std::int64_t chunk : {16, 70, 200})
    add("weights without decay", [=](Device& d) { check_undecayed(d, chunk); });
  return table;
}

}  // namespace zeroplan::executor::test
