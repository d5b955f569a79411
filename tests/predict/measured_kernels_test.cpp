#include "planner/predict/measured_kernels.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "planner/predict/kernels.hpp"
#include "planner/predict/links.hpp"
#include "planner/predict/stragglers.hpp"
#include "planner/predict/time.hpp"
#include "planner/program/builder.hpp"
#include "tests/support/predicted.hpp"

using namespace zeroplan;
using describe::CalibratedRates;
using describe::MeasuredKernel;
using program::Category;
using program::DataType;
using program::Op;

namespace {

// One instruction over operands of fp32.
struct One {
  One(Op op, std::initializer_list<std::int64_t> dims, std::size_t operands) {
    program::Builder builder(program, 1);
    program::Instruction& instruction = builder.emit(op, dims, {});
    for (std::size_t i = 0; i < operands; ++i) {
      instruction.operands[i] = program::at(builder.buffer("x", DataType::fp32, Category::workspace, 1));
    }
  }
  double seconds(const CalibratedRates& rates) const {
    return predict::measured_seconds(rates, program, program.code.front());
  }

  program::StepProgram program;
};

MeasuredKernel kernel(Op op, std::array<std::vector<double>, describe::kMostAxes> axes,
                      std::vector<double> rates) {
  MeasuredKernel result;
  result.kind.op = op;
  result.kind.types = 0xff0000;  // four operands of fp32
  result.axes = std::move(axes);
  result.rates = std::move(rates);
  return result;
}

}  // namespace

TEST_CASE("a product takes its operations by the rate of its sizes, between them by logarithms") {
  // m 10 and 1000, n 10, k 100 and 400.
  const CalibratedRates rates(
      1, {kernel(Op::matmul, {{{10, 1000}, {10}, {100, 400}}}, {1e6, 4e6, 9e6, 36e6})}, "");
  const auto seconds = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    return One(Op::matmul, {m, n, k}, 4).seconds(rates);
  };
  CHECK(seconds(10, 10, 100) == doctest::Approx(2 * 10 * 10 * 100 / 1e6));
  CHECK(seconds(1000, 10, 400) == doctest::Approx(2 * 1000 * 10 * 400 / 36e6));
  // Half way from 10 to 1000 in logarithms is 100, from 1e6 to 9e6 3e6; from 100 to 400 200, from 1 to 4 2.
  CHECK(seconds(100, 10, 100) == doctest::Approx(2 * 100 * 10 * 100 / 3e6));
  CHECK(seconds(10, 10, 200) == doctest::Approx(2 * 10 * 10 * 200 / 2e6));
  CHECK(seconds(100, 10, 200) == doctest::Approx(2 * 100 * 10 * 200 / 6e6));
  // Outside, and on the axis with one point: the nearest size's rate.
  CHECK(seconds(1, 7, 100) == doctest::Approx(2 * 1 * 7 * 100 / 1e6));
  CHECK(seconds(5000, 70, 5000) == doctest::Approx(2.0 * 5000 * 70 * 5000 / 36e6));
  CHECK(One(Op::matmul_input_gradient, {10, 10, 100}, 4).seconds(rates) == 0);
}

TEST_CASE("attention goes by its sequence and width, other kernels by their bytes") {
  const CalibratedRates rates(1,
                              {kernel(Op::attention_forward, {{{64, 256}, {64}, {}}}, {1e9, 16e9}),
                               kernel(Op::copy, {{{4096, 4096 * 16}, {}, {}}}, {1e9, 4e9})},
                              "");
  // Two products of the whole square: 4 b s^2 a d.
  const double operations = 4.0 * 3 * 128 * 128 * 2 * 64;
  CHECK(One(Op::attention_forward, {3, 128, 2, 64}, 4).seconds(rates) == doctest::Approx(operations / 4e9));
  // 2048 elements of fp32 are read and written: 16384 bytes, half way from 4096 to 65536.
  CHECK(One(Op::copy, {2048}, 2).seconds(rates) == doctest::Approx(16384 / 2e9));
}

TEST_CASE("the rates are those of the number of ranks that is nearest") {
  describe::Device device;
  CHECK(predict::calibrated_for(device, 1) == nullptr);
  for (const std::int64_t devices : {1, 2, 8})
    device.calibrated.emplace_back(devices, std::vector<MeasuredKernel>{}, "");
  for (const auto& [asked, found] : {std::pair{1, 1}, {2, 2}, {4, 2}, {6, 8}, {64, 8}}) {
    CHECK(predict::calibrated_for(device, asked)->devices() == found);
  }
}

TEST_CASE("a collective waits for a part of what was computed since the last one") {
  program::StepProgram step;
  program::Builder builder(step, 1);
  std::vector<double> seconds;
  const auto kernel = [&](double each) {
    builder.emit(Op::copy, {1}, {});
    seconds.resize(step.code.size(), 0);
    seconds.back() = each;
  };
  const auto collective = [&] {
    builder.emit(Op::all_reduce, {1}, {}).group = 0;
    seconds.resize(step.code.size(), 0);
    return step.code.size() - 1;
  };
  std::size_t inner = 0;
  kernel(5);
  builder.layers(4, 0, 1, [&] {
    seconds.resize(step.code.size(), 0);
    kernel(1);
    inner = collective();
    kernel(2);
  });
  builder.layers(10, 0, 1, [&] {
    seconds.resize(step.code.size(), 0);
    kernel(0.5);
  });
  seconds.resize(step.code.size(), 0);
  const std::size_t last = collective();
  const std::vector<double> waiting = predict::waiting_for_others(step, 0.1, seconds);
  // Four times: after 5 + 1, then three times after 2 + 1. The last after 2 and ten times a half.
  CHECK(4 * waiting[inner] == doctest::Approx(0.1 * (6 + 3 * 3)));
  CHECK(waiting[last] == doctest::Approx(0.1 * (2 + 5)));
  // All that was computed up to the last collective has been waited for once.
  CHECK(4 * waiting[inner] + waiting[last] == doctest::Approx(0.1 * (5 + 4 * 3 + 10 * 0.5)));
  CHECK(std::accumulate(waiting.begin(), waiting.end(), 0.0) ==
        doctest::Approx(waiting[inner] + waiting[last]));
}

TEST_CASE("what collectives wait for other ranks is no traffic, but the step and what is exposed have it") {
  program::StepProgram step;
  step.groups = {{program::GroupKind::data_parallel, 2}, {program::GroupKind::tensor_parallel, 2, 0, 2}};
  step.ranks = 4;
  program::Builder builder(step, 1);
  const auto vector = program::at(builder.buffer("x", DataType::fp32, Category::workspace, 250'000));
  const auto kernel = [&] { builder.emit(Op::copy, {2048}, {vector, vector}); };
  const auto all_reduce = [&](program::GroupKind kind) {
    builder.collective(Op::all_reduce, step.find_group(kind), 250'000, {vector}, 0, program::Stream::compute);
  };
  kernel();
  builder.layers(4, 0, 1, [&] {
    kernel();
    all_reduce(program::GroupKind::tensor_parallel);
  });
  kernel();
  all_reduce(program::GroupKind::data_parallel);

  // A copy of 16384 bytes takes 2 s, an all-reduce of 1e6 bytes 0.25 s.
  describe::Cluster cluster = describe::resolve_cluster("cpu", {}, 4);
  describe::AttainedCollective table;
  table.devices = 2;
  table.first_bytes = 1e6;
  table.busbw_gbytes_per_s = {4e-3, 4e-3};
  table.seconds = {0.25, 0.5};
  cluster.device.edit().attained_collectives = {table};
  const MeasuredKernel copies = ::kernel(Op::copy, {{{16384}, {}, {}}}, {8192});
  const auto time = [&](double skew) {
    const CalibratedRates measured(2, {copies}, "", skew);
    predict::KernelRates rates;
    rates.matmul_flops_per_s = rates.memory_bytes_per_s = 1;
    rates.measured = &measured;
    return predict::read_time(step, cluster, rates);
  };
  const predict::StepTime even = time(0);
  CHECK(even.compute_seconds == doctest::Approx(6 * 2));
  CHECK(even.tensor_parallel_seconds == doctest::Approx(4 * 0.25));
  CHECK(even.data_parallel_seconds == doctest::Approx(0.25));
  CHECK(even.waiting_seconds == 0);
  CHECK(even.seconds == doctest::Approx(12 + 1 + 0.25));

  // The first of four waits after two kernels, each other and the last after one.
  using predict::ExposedPart;
  const double tensor = 0.1 * (4 + 3 * 2);
  const double data = 0.1 * 2;
  const predict::StepTime uneven = time(0.1);
  CHECK(uneven.compute_seconds == doctest::Approx(even.compute_seconds));
  CHECK(uneven.tensor_parallel_seconds == doctest::Approx(even.tensor_parallel_seconds));
  CHECK(uneven.data_parallel_seconds == doctest::Approx(even.data_parallel_seconds));
  CHECK(uneven.waiting(ExposedPart::tensor_parallel) == doctest::Approx(tensor));
  CHECK(uneven.waiting(ExposedPart::data_parallel) == doctest::Approx(data));
  CHECK(uneven.waiting_seconds == doctest::Approx(tensor + data));
  CHECK(uneven.seconds == doctest::Approx(12 + 1 + 0.25 + tensor + data));
  CHECK(uneven.exposed(ExposedPart::tensor_parallel) == doctest::Approx(1 + tensor));
  CHECK(uneven.exposed(ExposedPart::data_parallel) == doctest::Approx(0.25 + data));
}

TEST_CASE("collectives that were measured by type take the time of theirs") {
  describe::Cluster cluster = describe::resolve_cluster("cpu", {}, 2);
  predict::Placement two;
  two.ranks = two.ranks_per_node = 2;
  const auto table = [](DataType type, std::vector<double> rates) {
    describe::AttainedCollective entry;
    entry.devices = 2;
    entry.type = type;
    entry.first_bytes = 1e6;
    entry.busbw_gbytes_per_s = std::move(rates);
    // An all-reduce of two ranks sends each byte once.
    entry.seconds = {1e6 / (entry.busbw_gbytes_per_s[0] * 1e9), 2e6 / (entry.busbw_gbytes_per_s[1] * 1e9)};
    return entry;
  };
  cluster.device.edit().attained_collectives = {table(DataType::fp32, {4, 4}), table(DataType::bf16, {1, 2})};
  const auto seconds = [&](double bytes, DataType type) {
    return predict::collective_seconds(cluster, two, Op::all_reduce, bytes, type);
  };
  CHECK(seconds(1e6, DataType::fp32) == doctest::Approx(0.25e-3));
  CHECK(seconds(1e6, DataType::bf16) == doctest::Approx(1e-3));
  CHECK(seconds(8e6, DataType::bf16) == doctest::Approx(4e-3));
  CHECK(seconds(1e6, DataType::fp16) > 0);  // not measured: one of the others
}
