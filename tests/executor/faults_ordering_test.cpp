#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "executor/device/cpu/cpu_device.hpp"
#include "executor/error.hpp"
#include "tests/executor/recording_communicator.hpp"
#include "tests/executor/training_support.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;
using namespace zeroplan::executor::test;
using namespace std::chrono_literals;
using describe::Model;
using describe::Plan;

// Faults that the order of things had in other engines: stream races and buffers used after their time (5),
// hangs and calls in different orders (10).

namespace {

// Holds threads back here and there, each time in another way.
class Disturbance {
 public:
  void operator()() {
    std::uint64_t draw = (count_.fetch_add(1) + 1) * 0x9E3779B97F4A7C15ULL;
    draw = (draw ^ (draw >> 29)) * 0xBF58476D1CE4E5B9ULL;
    draw ^= draw >> 32;
    if (draw % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(draw >> 8 & 127));
    if (draw % 16 < 4) std::this_thread::yield();
  }

 private:
  std::atomic<std::uint64_t> count_ = 0;
};

Plan mixed_plan(int stage) {
  Plan plan = fp32_plan();
  plan.data_parallel = 2;
  plan.tensor_parallel = 2;
  plan.zero_stage = stage;
  plan.gradient_accumulation = 2;
  return plan;
}

// A device that calls `failure` at the `call`-th matmul of its rank.
std::function<std::unique_ptr<Device>(std::int64_t)> failing_device(std::int64_t failing_rank, int call,
                                                                    const std::function<void()>& failure) {
  return [=](std::int64_t rank) {
    if (rank != failing_rank) return make_cpu_device({});
    int calls = 0;
    return hooked_device(make_cpu_device({}),
                         [=](const Kernel& kernel) mutable {
                           if (kernel.op == program::Op::matmul && calls++ == call) failure();
                         },
                         {});
  };
}

}  // namespace

TEST_CASE("fault 5, races: 100 runs with ranks and kernels held back at random have the same bits") {
  const Model model = tiny_llama();
  for (int stage = 0; stage <= 3; ++stage) {
    Plan plan = mixed_plan(stage);
    plan.sequence = 5;
    plan.recompute = stage % 2 == 0 ? describe::Recompute::full : describe::Recompute::none;
    plan.partition_activations = stage == 2;
    plan.offload_activations = stage == 2;
    TrainingOptions options;
    options.steps = 2;
    options.settings.clip_norm = 1;
    const Training reference = train(model, plan, options);
    Disturbance disturb;
    options.threads.delay = [&](std::int64_t) { disturb(); };
    options.device = [&](std::int64_t) {
      return hooked_device(make_cpu_device({}), [&](const Kernel&) { disturb(); }, {});
    };
    for (int repetition = 0; repetition < 25; ++repetition) {
      CAPTURE(stage);
      CAPTURE(repetition);
      const Training training = train(model, plan, options);
      CHECK(same_bits(training.losses, reference.losses));
      CHECK(same_bits(training.norms, reference.norms));
    }
  }
}

TEST_CASE("fault 10, order: all ranks of a group make the same calls, of the same elements, in one order") {
  for (const Model& model : {tiny_gpt(), tiny_llama()}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const auto recompute : {describe::Recompute::none, describe::Recompute::full}) {
        Plan plan = mixed_plan(stage);
        plan.data_parallel = 3;
        plan.precision = describe::Precision::fp16;
        plan.recompute = recompute;
        plan.partition_activations = recompute == describe::Recompute::full;
        CAPTURE(model.family);
        CAPTURE(stage);
        CAPTURE(name_of(recompute));
        Recording recording;
        TrainingOptions options;
        options.steps = 2;
        options.world = recorded_in(recording);
        train(model, plan, options);
        CHECK(recording.groups().size() == 5);  // two data-parallel groups and three tensor-parallel ones
        for (const auto& [group, ranks] : recording.groups()) {
          CHECK(ranks.size() == (group.first == 0 ? 3 : 2));
          for (const auto& [rank, calls] : ranks) {
            CHECK(calls.size() > 10);
            CHECK(calls == ranks.begin()->second);
          }
        }
      }
    }
  }
}

TEST_CASE("fault 10, hangs: a rank that throws in a kernel ends the run, with its rank and its reason") {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const int call : {0, 13, 30}) {
      TrainingOptions options;
      options.steps = 3;
      options.device = failing_device(1, call, [] { throw DeviceError("the device fell over"); });
      const auto start = std::chrono::steady_clock::now();
      CHECK_THROWS_WITH_AS(train(tiny_gpt(), mixed_plan(stage), options),
                           doctest::Contains("rank 1: the device fell over"), DeviceError);
      CHECK(std::chrono::steady_clock::now() - start < 20s);  // a third of the timeout
    }
  }
}

TEST_CASE("fault 10, hangs: a rank that stalls is named after the timeout, with its instruction") {
  for (const int stage : {0, 3}) {
    Plan plan = mixed_plan(stage);
    (stage == 0 ? plan.data_parallel : plan.tensor_parallel) = 1;
    // The stall ends when the other rank has left, and its device with it.
    std::atomic<bool> left = false;
    TrainingOptions options;
    options.threads.timeout = 1500ms;
    options.device = [&](std::int64_t rank) {
      if (rank == 1) {
        return hooked_device(make_cpu_device({}),
                             [&, calls = 0](const Kernel& kernel) mutable {
                               if (kernel.op != program::Op::matmul || calls++ != 19) return;
                               while (!left) std::this_thread::sleep_for(1ms);
                             },
                             {});
      }
      const std::shared_ptr<void> leaving(nullptr, [&](void*) { left = true; });
      return hooked_device(make_cpu_device({}), [leaving](const Kernel&) {}, {});
    };
    CAPTURE(stage);
    std::string message;
    try {
      train(tiny_gpt(), plan, options);
    } catch (const CommunicationError& error) {
      message = error.what();
    }
    CAPTURE(message);
    CHECK(message.find("rank 1 did not come within 1.5 s") != std::string::npos);
    CHECK(message.find("rank 1 was at: matmul of layer 1 in forward") != std::string::npos);
  }
}
