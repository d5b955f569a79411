#include "reports/comparison.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "reports/validation_report.hpp"
#include "tests/support/predicted.hpp"

using namespace zeroplan;
using program::GroupKind;
using program::Op;
using program::RankMeasurement;

namespace {

// As the compiler lists the groups of a plan without hybrid sharding.
constexpr std::size_t kData = 0, kTensor = 1;

// What a run measures when the prediction is right.
program::Measurement as_predicted(const predict::Prediction& prediction, std::int64_t ranks) {
  RankMeasurement rank;
  rank.device_peak_bytes = rank.device_block_bytes = prediction.memory().peak;
  rank.host_peak_bytes = prediction.memory().host_peak;
  rank.at_device_peak = rank.written_at_device_peak = prediction.memory().at_peak;
  rank.written_at_host_peak = prediction.memory().host_at_peak;
  const predict::ProgramPoint& place = prediction.memory().place;
  rank.peak_position = {place.phase, place.layer, place.instruction};
  for (const predict::TrafficEntry& entry : prediction.traffic().entries) {
    const program::GroupId group = prediction.program().find_group(entry.group);
    program::CollectiveCount& count = rank.collectives.at(group)[program::collective_index(entry.collective)];
    count.calls += static_cast<std::int64_t>(entry.calls);
    count.bytes += static_cast<Bytes>(entry.bytes);
    // A ring's share (the vectors of this plan divide evenly): 2 (n-1)/n and (n-1)/n of them.
    const std::int64_t n = prediction.program().groups.at(group).size;
    rank.moved.at(group)[program::collective_index(entry.collective)] +=
        (entry.collective == Op::all_reduce ? 2 : 1) * static_cast<Bytes>(entry.bytes) * (n - 1) / n;
  }
  rank.to_host_bytes = static_cast<Bytes>(prediction.traffic().to_host_bytes);
  rank.to_device_bytes = static_cast<Bytes>(prediction.traffic().to_device_bytes);
  rank.product_flops = prediction.work().hardware;
  program::Measurement measurement;
  measurement.ranks = ranks;
  for (std::int64_t r = 0; r < ranks; ++r) {
    rank.process = r;
    rank.process_growth_bytes = prediction.memory().peak + prediction.memory().host_peak;
    measurement.of_rank.push_back(rank);
  }
  for (const double seconds : {9.0, 2.0, 4.0, 1.0}) {
    program::StepMeasurement step;
    step.warm_up = seconds == 9;
    step.seconds = seconds;
    step.loss = step.gradient_norm = 4.6;
    measurement.steps.push_back(step);
  }
  return measurement;
}

}  // namespace

TEST_CASE("what is as predicted is ok, and each figure that is off by a little is not") {
  const predict::Prediction prediction = test::predicted(
      "layers=4,hidden=64,heads=4,vocab=100", "gpus=4 tp=2 zero=2 offload=optimizer seq=32", "cpu");
  const program::Measurement right = as_predicted(prediction, 4);
  CHECK(reports::compare(prediction, right).ok());
  CHECK(reports::compare(prediction, right).figures.size() > 12);

  const auto refused = [&](auto&& change) {
    program::Measurement wrong = right;
    change(wrong.of_rank[2]);  // any one rank
    return !reports::compare(prediction, wrong).ok();
  };
  CHECK(refused([](RankMeasurement& rank) { rank.written_at_device_peak[3] += 256; }));
  CHECK(refused([](RankMeasurement& rank) { rank.peak_position.layer += 1; }));
  CHECK(refused([](RankMeasurement& rank) { rank.to_host_bytes += 1; }));
  CHECK(refused([](RankMeasurement& rank) { rank.product_flops *= 1.001; }));
  CHECK(refused([](RankMeasurement& rank) { rank.product_flops *= 0.8; }));
  CHECK(refused([](RankMeasurement& rank) {
    rank.collectives[kData][program::collective_index(Op::reduce_scatter)].calls += 1;
  }));
  CHECK(refused([](RankMeasurement& rank) {
    rank.collectives[kTensor][program::collective_index(Op::all_reduce)].bytes -= 1;
  }));
  CHECK(refused([](RankMeasurement& rank) {
    rank.collectives[kTensor][program::collective_index(Op::broadcast)].calls = 1;  // not predicted at all
  }));
  // Bytes that were asked for, and did not move: one fewer, or none at all.
  for (const Bytes factor : {0, 1}) {
    CHECK(refused([factor](RankMeasurement& rank) {
      Bytes& moved = rank.moved[kData][program::collective_index(Op::reduce_scatter)];
      moved = factor * (moved - 1);
    }));
  }
  // What no rank wrote was declared too large. One that owns less of padded partitions may write less.
  const auto none_wrote = [&](auto&& change) {
    program::Measurement wrong = right;
    for (RankMeasurement& rank : wrong.of_rank) change(rank);
    return !reports::compare(prediction, wrong).ok();
  };
  CHECK(none_wrote([](RankMeasurement& rank) { rank.written_at_device_peak[0] -= 256; }));
  CHECK(none_wrote([](RankMeasurement& rank) { rank.written_at_host_peak[2] -= 256; }));
  CHECK_FALSE(refused([](RankMeasurement& rank) { rank.written_at_device_peak[0] -= 256; }));
  CHECK(refused([](RankMeasurement& rank) { rank.process_growth_bytes += 9 * kMiB; }));
  CHECK_FALSE(refused([](RankMeasurement& rank) { rank.process_growth_bytes += 7 * kMiB; }));
  // Causality: attention may leave out up to half of its squares.
  CHECK_FALSE(
      refused([&](RankMeasurement& rank) { rank.product_flops -= 0.49 * prediction.work().attention; }));
}

TEST_CASE("ranks that are threads of one process share its growth") {
  const predict::Prediction prediction =
      test::predicted("layers=4,hidden=64,heads=4,vocab=100", "gpus=2 zero=1 seq=32", "cpu");
  program::Measurement measurement = as_predicted(prediction, 2);
  for (RankMeasurement& rank : measurement.of_rank) {
    rank.process = 7;
    rank.process_growth_bytes = 2 * prediction.memory().peak;
  }
  CHECK(reports::compare(prediction, measurement).ok());
}

TEST_CASE("times: traffic without waiting for other ranks, which has a row of its own") {
  predict::Prediction prediction =
      test::predicted("layers=4,hidden=64,heads=4,vocab=100", "gpus=4 tp=2 zero=1 seq=32", "cpu");
  prediction.time = {};
  prediction.time.seconds = 2;
  prediction.time.compute_seconds = 1.5;
  prediction.time.data_parallel_seconds = 0.25;
  prediction.time.tensor_parallel_seconds = 0.05;
  prediction.time.waiting_seconds = 0.5;
  const auto exposed = [&](predict::ExposedPart part) -> double& {
    return prediction.time.exposed_seconds[static_cast<std::size_t>(part)];
  };
  exposed(predict::ExposedPart::data_parallel) = 0.6;
  exposed(predict::ExposedPart::tensor_parallel) = 0.2;
  program::Measurement measurement = as_predicted(prediction, 4);  // measured steps of 2, 4 and 1 s
  measurement.times = {{Op::matmul, {}, 3, 3.0, 0},
                       {Op::all_reduce, GroupKind::data_parallel, 3, 0.9, 0.6},
                       {Op::all_gather, GroupKind::data_parallel, 3, 0.6, 0.3},
                       {Op::all_reduce, GroupKind::tensor_parallel, 6, 0.6, 0.3}};
  measurement.waited_for_traffic_seconds = 1.4;
  const auto check = [&](const std::string& key, double predicted, double measured) {
    CAPTURE(key);
    int found = 0;
    for (const reports::ComparedTime& row : reports::compare_times(prediction, measurement)) {
      if (row.key != key) continue;
      ++found;
      CHECK(row.predicted == doctest::Approx(predicted));
      CHECK(row.measured == doctest::Approx(measured));
    }
    CHECK(found == 1);
  };
  check("time.step", 2, 2);
  check("time.compute", 1.5, 3.0 / 3);
  check("time.data_parallel", 0.25, (0.3 + 0.3) / 3);
  check("time.tensor_parallel", 0.05, 0.3 / 3);
  check("time.waiting", 0.5, (0.6 + 0.3 + 0.3) / 3);
  check("time.exposed_share", (0.6 + 0.2) / 2, 1.4 / 7);
  check("time.hidden_share", 1 - (0.6 + 0.2) / (0.25 + 0.05 + 0.5), 1 - 1.4 / (0.9 + 0.6 + 0.6));

  prediction.time.waiting_seconds = 0;
  for (program::InstructionTime& time : measurement.times) time.waiting_seconds = 0;
  for (const reports::ComparedTime& row : reports::compare_times(prediction, measurement)) {
    CHECK(row.key != "time.waiting");
  }
}

TEST_CASE("speed is that of the median measured step") {
  const predict::Prediction prediction =
      test::predicted("layers=4,hidden=64,heads=4,vocab=100", "gpus=2 zero=1 seq=32 micro_batch=3", "cpu");
  const reports::MeasuredSpeed speed = reports::measured_speed(prediction, as_predicted(prediction, 2));
  CHECK(speed.step_seconds == 2);
  CHECK(speed.fastest_seconds == 1);
  CHECK(speed.slowest_seconds == 4);
  CHECK(speed.tokens_per_second == 2 * 3 * 32 / 2.0);
  CHECK(speed.model_tflops == doctest::Approx(prediction.work().model / 2 / 1e12));

  // findings/executor.md, section 1.2, number 9: what the hardware did is what was counted, and not what was
  // predicted.
  program::Measurement less = as_predicted(prediction, 2);
  for (RankMeasurement& rank : less.of_rank) rank.product_flops = 3e12;
  CHECK(reports::measured_speed(prediction, less).hardware_tflops == doctest::Approx(1.5));
}

TEST_CASE(
    "ranks that do not hold alike what they must, or do not wait for each other, are a no that names them") {
  const predict::Prediction prediction =
      test::predicted("layers=4,hidden=64,heads=4,vocab=100", "gpus=2 zero=1 seq=32", "cpu");
  const auto reason = [&](auto&& change) {
    program::Measurement measurement = as_predicted(prediction, 2);
    for (program::ReplicaCheck* check :
         {&measurement.replicas.data_parallel, &measurement.replicas.tensor_parallel,
          &measurement.replicas.masters}) {
      check->compared = 5;
    }
    for (std::size_t r = 0; r < 2; ++r) {
      for (program::Meeting& meeting : measurement.of_rank[r].meetings) {
        meeting = {100 + static_cast<std::int64_t>(r), 102};
      }
    }
    change(measurement);
    std::string all;
    for (const reports::ComparedText& text : reports::compare(prediction, measurement).texts) {
      if (!text.ok()) all += text.title + ": " + text.measured;
    }
    return all;
  };
  using program::Measurement;
  CHECK(reason([](Measurement&) {}).empty());
  CHECK(reason([](Measurement& m) { m.replicas.data_parallel.difference = "rank 1 differs"; }) ==
        "parameters of data-parallel ranks: rank 1 differs");
  CHECK(!reason([](Measurement& m) { m.replicas.tensor_parallel.difference = "rank 1 differs"; }).empty());
  CHECK(!reason([](Measurement& m) { m.replicas.masters.difference = "rank 1"; }).empty());
  CHECK(reason([](Measurement& m) { m.of_rank[0].meetings[1].left = 100; }) ==
        "barriers: rank 0 went on 1 ns before rank 1 came");
  CHECK(reason([](Measurement& m) {
          m.of_rank[0].meetings[1].left = 100;
          m.of_rank[0].host = 7;  // another machine's clock
        }).empty());
}

TEST_CASE("steps that were taken again on one rank have their tolerance, and none is the same bits") {
  const predict::Prediction prediction =
      test::predicted("layers=4,hidden=64,heads=4,vocab=100", "gpus=2 zero=1 seq=32", "cpu");
  const auto ok = [&](double loss, double norm, double tolerance) {
    program::Measurement measurement = as_predicted(prediction, 2);
    measurement.steps = {};
    measurement.one_rank = {{}, tolerance, tolerance};
    for (const std::int64_t number : {1, 2, 3}) {
      program::StepMeasurement step;
      step.step = number;
      step.loss = step.gradient_norm = 5;
      if (number < 3) measurement.one_rank.steps.push_back(step);
      if (number == 2) step.loss = loss;
      if (number == 2) step.gradient_norm = norm;
      measurement.steps.push_back(step);
    }
    return reports::compare(prediction, measurement).ok();
  };
  CHECK(ok(5, 5, 0));
  CHECK_FALSE(ok(5.000001, 5, 0));
  CHECK_FALSE(ok(5, 4.999999, 0));
  CHECK(ok(5.0004, 4.9996, 1e-4));
  CHECK_FALSE(ok(5.0006, 5, 1e-4));
  CHECK_FALSE(ok(5, 4.9994, 1e-4));
  CHECK_FALSE(ok(5, std::nan(""), 1e-1));
}

TEST_CASE("weights that were drawn begin at a loss of about ln(vocabulary)") {
  const predict::Prediction prediction =
      test::predicted("layers=4,hidden=64,heads=4,vocab=100", "gpus=2 zero=1 seq=32", "cpu");
  const auto is_ok = [&](double loss, program::DrawnWeights drawn) {
    program::Measurement measurement = as_predicted(prediction, 2);
    measurement.drawn = drawn;
    measurement.steps = {};
    program::StepMeasurement step;
    step.loss = loss;
    step.gradient_norm = 1;
    measurement.steps.push_back(step);
    return reports::compare(prediction, measurement).ok();
  };
  // A published reproduction of GPT-2 124M begins at 10.951 (debtirthasaha.github.io/blog/2026/gpt2-124m).
  CHECK(is_ok(10.951, {50257, 768}));
  CHECK_FALSE(is_ok(10.951 / 2, {50257, 768}));  // as if there were twice the tokens
  CHECK_FALSE(is_ok(10.951 * 2, {50257, 768}));
  CHECK(is_ok(3, {}));  // weights of a file
}

TEST_CASE("a run that diverged is a no, with the reason") {
  const predict::Prediction prediction =
      test::predicted("layers=4,hidden=64,heads=4,vocab=100", "gpus=2 zero=1 seq=32", "cpu");
  const auto reasons = [&](auto&& change) {
    program::Measurement measurement = as_predicted(prediction, 2);
    std::vector<program::StepMeasurement> steps = measurement.steps.kept();
    for (program::StepMeasurement& step : steps) step.loss_scale = 65536;
    change(steps);
    measurement.steps = {};
    for (const program::StepMeasurement& step : steps) measurement.steps.push_back(step);
    std::string all;
    for (const reports::ComparedText& text : reports::compare(prediction, measurement).texts) {
      if (!text.ok()) all += text.title + ": " + text.measured + "\n";
    }
    return all;
  };
  using Steps = std::vector<program::StepMeasurement>;
  CHECK(reasons([](Steps& steps) { steps[2].loss = 0; }).find("losses: 0 in step") == 0);
  CHECK(reasons([](Steps& steps) { steps[2].gradient_norm = 0; }) ==
        "updates: the gradient's norm is 0 in step 0\n");
  CHECK(reasons([](Steps&) {}).empty());
  CHECK(reasons([](Steps& steps) { steps[2].loss = std::nan(""); }).find("losses: nan in step") == 0);
  CHECK(reasons([](Steps& steps) { steps[1].loss = INFINITY; }).find("losses: inf in step") == 0);
  // A loss scale that looks for its size skips steps; where nothing is left to halve, gradients overflow.
  CHECK(reasons([](Steps& steps) { steps[0].skipped = steps[1].skipped = true; }).empty());
  CHECK(reasons([](Steps& steps) {
          steps[2].skipped = true;
          steps[2].loss_scale = 1;
        }).find("updates: gradients are not finite") == 0);
  CHECK(reasons([](Steps& steps) {
          for (program::StepMeasurement& step : steps) step.skipped = true;
        }).find("updates: none: each measured step was skipped") == 0);
}
