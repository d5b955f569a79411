#include "planner/calibrate/rates.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include "planner/calibrate/probes.hpp"
#include "planner/predict/measured_kernels.hpp"
#include "planner/predict/memory.hpp"

using namespace zeroplan;
using describe::CalibratedRates;
using describe::KernelSizes;
using program::Op;

namespace {

constexpr calibrate::ProbeSizes kQuick{.quick = true};

std::vector<calibrate::Probe> probes(std::int64_t ranks = 1, calibrate::ProbeSizes chosen = kQuick) {
  return calibrate::kernel_probes(describe::Precision::bf16, {program::GroupKind::data_parallel, ranks},
                                  chosen);
}

}  // namespace

TEST_CASE("what rounds come to: their median, so that a slow one does not count") {
  const calibrate::Typical steady = calibrate::typical_of({2, 1, 3});
  CHECK(steady.value == doctest::Approx(2));
  CHECK(steady.spread == doctest::Approx(0.25));  // quartiles 1.5 and 2.5
  CHECK(calibrate::typical_of({2, 2, 1000}).value == doctest::Approx(2));
  CHECK(calibrate::typical_of({}).value == 0);
  CHECK(calibrate::mean_of({{1, 5}, {3, 6}}) == std::vector<double>{2, 5.5});
}

TEST_CASE("rates that a machine has by its sizes alone are found again at every point that was measured") {
  // A machine of 1e9 operations or bytes a second, but twice that where an instruction has much to do.
  const auto seconds_of = [](const program::StepProgram& step, const program::Instruction& instruction) {
    const double work = predict::kernel_work(step, instruction);
    return work / (work > 1e7 ? 2e9 : 1e9);
  };
  const std::vector<calibrate::Probe> all = probes();
  calibrate::KernelTables tables;
  for (const calibrate::Probe& probe : all) {
    std::vector<double> seconds;
    for (const program::Instruction& instruction : probe.program.code) {
      seconds.push_back(seconds_of(probe.program, instruction));
    }
    tables.add(probe, {seconds, seconds});
  }
  const CalibratedRates rates = tables.rates(3, "test", 0.5);
  CHECK(rates.devices() == 3);
  CHECK(rates.skew() == 0.5);
  std::size_t points = 0;
  for (const calibrate::Probe& probe : all) {
    for (const program::Instruction& instruction : probe.program.code) {
      const bool is_kernel = instruction.op > Op::load_batch && instruction.op < Op::all_reduce;
      const bool streams = describe::sizes_of(instruction.op) == KernelSizes::streaming;
      if (!is_kernel || streams == probe.is_grid) continue;
      ++points;
      CAPTURE(program::name_of(instruction.op));
      // Streaming kernels of nearly the same size are one point.
      const double tolerance = streams ? 0.2 : 1e-9;
      CHECK(predict::measured_seconds(rates, probe.program, instruction) ==
            doctest::Approx(seconds_of(probe.program, instruction)).epsilon(tolerance));
    }
  }
  CHECK(points > 100);
}

TEST_CASE("probes between them run all kernels that steps have here, in few gigabytes") {
  std::set<Op> ops;
  for (const calibrate::Probe& probe : probes(2, {})) {
    for (const program::Instruction& instruction : probe.program.code) ops.insert(instruction.op);
    CHECK(predict::read_memory(probe.program).peak < 2 * kGiB);
  }
  // What is planned, but not run: experts. Copies to the host take the rate of memory.
  const std::set<Op> not_run{Op::route_tokens, Op::combine_tokens, Op::combine_backward, Op::route_backward,
                             Op::copy_to_host};
  for (auto op = static_cast<int>(Op::fill_zero); op < static_cast<int>(Op::all_reduce); ++op) {
    CAPTURE(program::name_of(static_cast<Op>(op)));
    CHECK(ops.contains(static_cast<Op>(op)) != not_run.contains(static_cast<Op>(op)));
  }
}

TEST_CASE("probes of a GPU run the same kernels and fit its memory") {
  const auto most_held = [](bool quick) {
    Bytes most = 0;
    const program::Group ranks{program::GroupKind::data_parallel, 2};
    for (const calibrate::Probe& probe :
         calibrate::kernel_probes(describe::Precision::fp32, ranks, {.quick = quick, .of_gpu = true})) {
      most = std::max(most, predict::read_memory(probe.program).peak);
    }
    return most;
  };
  CHECK(most_held(true) < kGiB);
  CHECK(most_held(false) < 10 * kGiB);
}

TEST_CASE("a table of a collective has the bus bandwidth of nccl-tests") {
  const calibrate::Probe probe = calibrate::collective_probe(
      describe::Precision::fp32, {program::GroupKind::data_parallel, 4, 1}, kQuick);
  // Every collective at 1e9 bytes of the whole vector a second.
  std::vector<double> seconds;
  std::map<Op, std::size_t> calls;
  for (const program::Instruction& instruction : probe.program.code) {
    seconds.push_back(static_cast<double>(4 * instruction.dims[0]) / 1e9);
    if (instruction.group != program::kNoGroup) ++calls[instruction.op];
  }
  const auto tables = calibrate::collective_tables(probe, {seconds}, "test");
  REQUIRE(tables.size() == 3);
  for (const describe::AttainedCollective& table : tables) {
    CHECK(table.devices == 4);
    CHECK(table.type == program::DataType::fp32);
    CHECK(table.first_bytes == 4096);
    CHECK(table.busbw_gbytes_per_s.size() == calls[Op::all_reduce]);
    // 2 (n - 1) / n of the bytes for an all-reduce, (n - 1) / n for the others.
    const double busbw = table.collective == describe::Collective::all_reduce ? 1.5 : 0.75;
    for (const double rate : table.busbw_gbytes_per_s) CHECK(rate == doctest::Approx(busbw));
  }
}

TEST_CASE("skew is what ranks wait beyond the fastest collective, over what they compute") {
  const calibrate::Probe probe = calibrate::skew_probe({program::GroupKind::data_parallel, 2, 0}, kQuick);
  std::vector<double> even, late;
  for (const program::Instruction& instruction : probe.program.code) {
    const bool meets = instruction.group != program::kNoGroup;
    const bool first = meets && !late.empty() && even.back() == 0;
    even.push_back(instruction.op == Op::matmul ? 2 : meets ? 0.5 : 0);
    late.push_back(instruction.op == Op::matmul ? 2 : meets ? (first ? 0.5 : 0.7) : 0);
  }
  CHECK(calibrate::skew_of(probe, {even}) == 0);
  CHECK(calibrate::skew_of(probe, {even, late}) == doctest::Approx(0.2 / 2 / 2));
}

TEST_CASE("on a GPU, what the host does of a step with offloaded states is not the device's") {
  // The host is slow, the device is not.
  constexpr double kHost = 1e3, kDevice = 1e9;
  const auto slowest = [&](bool of_gpu) {
    calibrate::KernelTables tables(of_gpu);
    bool has_host_work = false;
    for (const calibrate::Probe& probe : probes()) {
      std::vector<double> seconds;
      for (const program::Instruction& instruction : probe.program.code) {
        const bool on_host = instruction.stream == program::Stream::host;
        has_host_work = has_host_work || (on_host && program::is_executed_by_device(instruction.op));
        seconds.push_back(predict::kernel_work(probe.program, instruction) / (on_host ? kHost : kDevice));
      }
      tables.add(probe, {seconds});
    }
    CHECK(has_host_work);
    double least = kDevice;
    const CalibratedRates measured = tables.rates(1, "test", 0);
    for (const describe::MeasuredKernel& kernel : measured.kernels()) {
      for (const double rate : kernel.rates) least = std::min(least, rate);
    }
    return least;
  };
  CHECK(slowest(true) == doctest::Approx(kDevice).epsilon(1e-6));
  CHECK(slowest(false) < kDevice / 2);
}
