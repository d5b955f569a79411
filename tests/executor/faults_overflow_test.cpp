#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <limits>

#include "executor/device/cpu/cpu_device.hpp"
#include "executor/elements.hpp"
#include "planner/predict/traffic.hpp"
#include "planner/program/compile.hpp"
#include "tests/executor/recording_communicator.hpp"
#include "tests/executor/training_support.hpp"
#include "tests/support/plans.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;
using namespace zeroplan::executor::test;
using describe::Model;
using describe::Plan;
using describe::Precision;
using program::Op;

// Faults that 16-bit types of other engines had: overflow that ranks do not agree on (4), several types in
// one group (11).

namespace {

// A gradient kernel of step 2 on some ranks leaves `value` behind.
struct Injection {
  Op op = Op::matmul_weight_gradient;  // or norm_backward
  int call = 2;                        // of that op in the step
  float value = std::numeric_limits<float>::infinity();
  std::int64_t rank = 1;  // of the world; -1: on all

  void apply_to(TrainingOptions& options) const {
    const Injection injection = *this;
    options.device = [injection](std::int64_t world_rank) {
      if (injection.rank >= 0 && world_rank != injection.rank) return make_cpu_device({});
      int steps = 0;
      int calls = 0;
      return hooked_device(make_cpu_device({}), {}, [=](const Kernel& kernel) mutable {
        if (kernel.op == Op::scale_update) {
          ++steps;
          calls = 0;
        }
        if (kernel.op != injection.op || calls++ != injection.call || steps != 1) return;
        store_element(kernel.operands[injection.op == Op::norm_backward ? 5 : 2], 3, injection.value);
      });
    };
  }
};

constexpr State kKept[] = {State::parameter, State::master, State::momentum, State::variance};

// Every state after step 1 and after step 2, by element.
struct Snapshots {
  Snapshots(const Model& model, const Plan& plan) {
    for (std::vector<std::unique_ptr<WholeModel>>* step : {&after_first, &after_second}) {
      for (std::size_t i = 0; i < std::size(kKept); ++i)
        step->push_back(std::make_unique<WholeModel>(model, plan));
    }
  }

  void visit(Rank& rank, std::int64_t step) {
    if (step != 1 && step != 2) return;
    const bool mastered = rank.program().units[0].master != program::kNoBuffer;
    for (std::size_t i = 0; i < std::size(kKept); ++i) {
      if (kKept[i] == State::master && !mastered) continue;
      (step == 1 ? after_first : after_second)[i]->collect(rank, kKept[i]);
    }
    collected_masters = mastered;
  }

  bool unchanged() const {
    bool same = true;
    for (std::size_t i = 0; i < std::size(kKept); ++i) {
      if (kKept[i] == State::master && !collected_masters) continue;
      for (const auto& [name, tensor] : after_first[i]->tensors())
        same = same && same_bits(tensor.values, after_second[i]->at(name.name, name.layer).values);
    }
    return same;
  }

  std::vector<std::unique_ptr<WholeModel>> after_first, after_second;
  std::atomic<bool> collected_masters = false;
};

TrainingOptions fp16_options() {
  TrainingOptions options;
  options.steps = 4;
  options.loss_scale = 1024;
  options.settings.clip_norm = 1;
  options.settings.dynamic_loss_scale = true;
  return options;
}

// The second step is left out: same states, and the next steps are those of a run that never saw its batch
// and had `scale` from there on.
void check_skipped(const Model& model, const Plan& plan, TrainingOptions options, const Injection& injection,
                   float scale) {
  Snapshots snapshots(model, plan);
  injection.apply_to(options);
  options.visit = [&](Rank& rank, std::int64_t step) { snapshots.visit(rank, step); };
  const Training training = train(model, plan, options);  // all ranks agree, or this throws
  for (std::size_t i = 0; i < training.results.size(); ++i) {
    CHECK(training.results[i].skipped == (i == 1));
    CHECK(training.results[i].loss_scale == (i < 2 ? options.loss_scale : scale));
    CHECK(std::isfinite(training.results[i].loss));
    if (i != 1) CHECK(std::isfinite(training.results[i].gradient_norm));
  }
  CHECK(snapshots.unchanged());

  options.device = nullptr;
  options.steps = 3;
  options.tokens = [tokens = learnable_tokens(model.vocabulary)](std::int64_t step, std::int64_t sequence,
                                                                 std::int64_t position) {
    return tokens(step == 0 ? 0 : step + 1, sequence, position);
  };
  options.visit = [&](Rank& rank, std::int64_t step) {
    if (step == 1) rank.interpreter().set_scalar(program::Scalar::loss_scale, scale);
  };
  const Training spared = train(model, plan, options);
  CHECK(same_bits({training.losses[0], training.losses[2], training.losses[3]}, spared.losses));
  CHECK(same_bits({training.norms[0], training.norms[2], training.norms[3]}, spared.norms));
}

Plan plan_of(Precision precision, Degrees degrees, int stage) {
  Plan plan = zeroplan::test::plain_plan();
  plan.precision = precision;
  plan.data_parallel = degrees.data_parallel;
  plan.tensor_parallel = degrees.tensor_parallel;
  plan.zero_stage = stage;
  return plan;
}

}  // namespace

TEST_CASE("fault 4, overflow: an infinity on one rank makes all ranks skip and halve the scale once") {
  const Model model = tiny_gpt();
  for (int stage = 0; stage <= 3; ++stage) {
    for (const Degrees degrees : {Degrees{2, 1}, Degrees{1, 2}, Degrees{2, 2}, Degrees{3, 1}}) {
      CAPTURE(stage);
      CAPTURE(degrees.data_parallel);
      CAPTURE(degrees.tensor_parallel);
      Plan plan = plan_of(Precision::fp16, degrees, stage);
      plan.gradient_accumulation = degrees.data_parallel == 2 ? 2 : 1;
      check_skipped(model, plan, fp16_options(), {}, 512);
    }
  }
}

TEST_CASE("fault 4, overflow: in what tensor-parallel ranks hold alike, on the one that does not count it") {
  const Model model = tiny_gpt();
  for (int stage = 0; stage <= 3; ++stage) {
    CAPTURE(stage);
    const Injection injection{.op = Op::norm_backward};
    check_skipped(model, plan_of(Precision::fp16, {1, 2}, stage), fp16_options(), injection, 512);
    check_skipped(model, plan_of(Precision::fp16, {2, 2}, stage), fp16_options(), injection, 512);
  }
}

TEST_CASE("fault 4, overflow: that only the sum over ranks has") {
  const Model model = tiny_gpt();
  for (int stage = 0; stage <= 3; ++stage) {
    CAPTURE(stage);
    const Injection injection{.value = 40000, .rank = -1};
    check_skipped(model, plan_of(Precision::fp16, {2, 1}, stage), fp16_options(), injection, 512);
  }
}

TEST_CASE("fault 4, overflow: a NaN is skipped without a loss scale too") {
  const Model model = tiny_gpt();
  for (const Precision precision : {Precision::bf16, Precision::fp32}) {
    for (int stage = 0; stage <= 3; ++stage) {
      CAPTURE(name_of(precision));
      CAPTURE(stage);
      TrainingOptions options = fp16_options();
      options.loss_scale = 1;
      options.settings.dynamic_loss_scale = false;
      const Injection injection{.value = std::numeric_limits<float>::quiet_NaN()};
      check_skipped(model, plan_of(precision, {2, 1}, stage), options, injection, 1);
      check_skipped(model, plan_of(precision, {2, 2}, stage), options, injection, 1);
    }
  }
}

TEST_CASE("fault 11, mixed types: fp32 statistics and 16-bit matrices share a group, with right bytes") {
  const Model model = tiny_gpt();
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    for (int stage = 0; stage <= 3; ++stage) {
      const Plan plan = plan_of(precision, {2, 2}, stage);
      CAPTURE(name_of(precision));
      CAPTURE(stage);
      TrainingOptions options;
      Recording recording;
      options.world = recorded_in(recording);
      const Training training = train(model, plan, options);
      for (const auto group : {program::GroupKind::data_parallel, program::GroupKind::tensor_parallel}) {
        const int split = group == program::GroupKind::data_parallel ? 0 : 1;
        const Recording::Calls& calls = recording.groups().at({split, 0}).at(0);
        double bytes = 0;
        std::map<program::DataType, int> types;
        for (const LedgerEntry& call : calls) {
          bytes += static_cast<double>(call.elements * (call.type == program::DataType::fp32 ? 4 : 2));
          ++types[call.type];
        }
        double predicted = 0;
        for (const predict::TrafficEntry& entry :
             predict::read_traffic(program::compile(model, plan)).entries) {
          if (entry.group == group) predicted += entry.bytes;
        }
        CHECK(bytes == predicted);
        CHECK(types.size() == 2);
        CHECK(types[program::DataType::fp32] > 0);
      }

      // The loss is the mean of what each data-parallel rank finds alone: summed in fp32, where bf16 would be
      // off by up to 2^-9 of it.
      double mean = 0;
      for (const std::int64_t rank : {0, 1}) {
        TrainingOptions alone;
        alone.tokens = [&, tokens = learnable_tokens(model.vocabulary)](
                           std::int64_t step, std::int64_t sequence, std::int64_t position) {
          return tokens(step, sequence + rank * plan.micro_batch, position);
        };
        mean += static_cast<double>(train(model, plan_of(precision, {1, 2}, 0), alone).losses.front()) / 2;
      }
      CHECK(training.losses.front() == doctest::Approx(mean).epsilon(2e-7));
    }
  }
}
