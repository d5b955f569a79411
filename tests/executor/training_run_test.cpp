#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "executor/communicator/threads/thread_communicator.hpp"
#include "executor/device/cpu/cpu_device.hpp"
#include "executor/error.hpp"
#include "executor/training.hpp"
#include "executor/waiting.hpp"
#include "planner/instructions/table.hpp"
#include "planner/predict/memory.hpp"
#include "planner/program/compile.hpp"
#include "tests/executor/training_support.hpp"

// A measured run: what it reports while it goes on, and at its end.

using namespace zeroplan;
using namespace zeroplan::executor;

namespace {

TrainingJob job_of(const describe::Model& model, const describe::Plan& plan) {
  TrainingJob job;
  job.tensor_parallel = plan.tensor_parallel;
  job.plan = [model, plan](program::RankPosition position) {
    program::StepProgram program = program::compile(model, plan, position);
    const predict::MemoryProfile memory = predict::read_memory(program);
    return RankPlan{std::move(program), {memory.peak, memory.host_peak}};
  };
  job.device = [] { return make_cpu_device({}); };
  job.batches = {plan.sequence, plan.micro_batch, plan.gradient_accumulation, plan.data_parallel};
  job.vocabulary = model.vocabulary;
  job.settings.learning_rate = 1e-2F;
  return job;
}

// Slow in one kernel, so that a step outlasts the heartbeat.
std::unique_ptr<Device> slow_device(std::chrono::milliseconds delay,
                                    program::Op slow = program::Op::scale_update) {
  return test::hooked_device(make_cpu_device({}),
                             [delay, slow](const Kernel& kernel) {
                               if (kernel.op == slow) std::this_thread::sleep_for(delay);
                             },
                             {});
}

}  // namespace

TEST_CASE("a run reports each step, and where it is when a step takes long") {
  const describe::Model model = test::tiny_gpt();
  describe::Plan plan = test::fp32_plan();
  plan.data_parallel = 2;
  plan.zero_stage = 1;
  TrainingJob job = job_of(model, plan);
  job.warm_up_steps = 1;
  job.measured_steps = 2;
  job.device = [] { return slow_device(std::chrono::milliseconds(200)); };
  job.heartbeat = std::chrono::milliseconds(20);
  std::vector<program::StepMeasurement> steps;
  std::vector<std::string> beats;
  job.stepped = [&](const program::StepMeasurement& step) { steps.push_back(step); };
  job.still_running = [&](const std::string& where) { beats.push_back(where); };
  program::Measurement measurement;
  run_ranks(2, ThreadOptions{}, [&](Communicator& world) {
    program::Measurement own = train(job, world);
    if (world.rank() == 0) measurement = std::move(own);
  });
  CHECK(steps.size() == 3);
  CHECK(measurement.steps.size() == 3);
  CHECK(measurement.steps[0].warm_up);
  CHECK_FALSE(measurement.steps[1].warm_up);
  for (const program::StepMeasurement& step : measurement.steps) CHECK(step.seconds >= 0.2);
  REQUIRE(!beats.empty());
  bool named = false;
  for (const std::string& beat : beats)
    named = named || beat.find("scale_update in step") != std::string::npos;
  CHECK(named);

  REQUIRE(measurement.of_rank.size() == 2);
  CHECK(measurement.of_rank[0].process == measurement.of_rank[1].process);
  CHECK(measurement.of_rank[1].device_peak_bytes == measurement.of_rank[0].device_peak_bytes);
  double slow = 0;
  double kernels = 0;
  for (const program::InstructionTime& time : measurement.times) {
    if (time.op == program::Op::scale_update) {
      slow = time.seconds;
      CHECK(time.calls == 2);  // of the measured steps
    }
    // Collectives, and what adds what they brought, run beside the others.
    if (program::class_of(time.op) == program::Class::kernel && time.op != program::Op::accumulate) {
      kernels += time.seconds;
    }
  }
  CHECK(slow >= 0.4);
  CHECK(kernels <= measurement.steps[1].seconds + measurement.steps[2].seconds);
}

TEST_CASE("the wait for a rank that comes late is told apart from the transfer") {
  // Far above what processors that are shared with other tests hold up the collectives of a step.
  constexpr auto kDelay = std::chrono::milliseconds(300);
  constexpr std::int64_t kSteps = 4;
  const double slept = kSteps * std::chrono::duration<double>(kDelay).count();
  const describe::Model model = test::tiny_gpt();
  for (const program::Group group : {program::Group::data_parallel, program::Group::tensor_parallel}) {
    describe::Plan plan = test::fp32_plan();
    (group == program::Group::data_parallel ? plan.data_parallel : plan.tensor_parallel) = 2;
    TrainingJob job = job_of(model, plan);
    job.measured_steps = kSteps;
    for (const std::int64_t late : {0, 1}) {
      CAPTURE(late);
      program::Measurement measurement;
      run_ranks(2, ThreadOptions{}, [&](Communicator& world) {
        TrainingJob own_job = job;
        if (world.rank() == late)
          own_job.device = [&] { return slow_device(kDelay, program::Op::embedding_forward); };
        program::Measurement own = train(own_job, world);
        if (world.rank() == 0) measurement = std::move(own);
      });
      double waiting = 0;
      double transfer = 0;
      for (const program::InstructionTime& time : measurement.times) {
        CHECK(time.waiting_seconds >= 0);
        CHECK(time.waiting_seconds <= time.seconds * (1 + 1e-6));
        if (time.group == group) {
          waiting += time.waiting_seconds;
          transfer += time.seconds - time.waiting_seconds;
        } else {
          CHECK(time.waiting_seconds == 0);
        }
      }
      // Ranks meet between steps, so a step's delay comes before its own first collective. The rank that is
      // late waits for none.
      CHECK(transfer < 0.5 * slept);
      if (late == 1) CHECK(waiting >= 0.8 * slept);
      if (late == 0) CHECK(waiting < 0.5 * slept);
    }
  }
}

TEST_CASE("groups that rank 0 is not in take part in telling waiting apart, and no ledger counts that") {
  const describe::Model model = test::tiny_gpt();
  describe::Plan plan = test::fp32_plan();
  plan.data_parallel = plan.tensor_parallel = 2;
  TrainingJob job = job_of(model, plan);
  job.measured_steps = 1;
  program::Measurement measurement;
  run_ranks(4, ThreadOptions{}, [&](Communicator& world) {
    program::Measurement own = train(job, world);
    if (world.rank() == 0) measurement = std::move(own);
  });
  REQUIRE(measurement.of_rank.size() == 4);
  for (const program::Group group : {program::Group::data_parallel, program::Group::tensor_parallel}) {
    std::int64_t timed = 0;
    for (const program::InstructionTime& time : measurement.times) {
      if (time.group == group) timed += time.calls;
    }
    CHECK(timed > 0);
    for (const program::RankMeasurement& rank : measurement.of_rank) {
      std::int64_t counted = 0;
      for (const program::CollectiveCount& count : rank.collectives[static_cast<std::size_t>(group)]) {
        counted += count.calls;
      }
      CHECK(counted == timed);
    }
  }
}

TEST_CASE("an error of a run says the step and the instruction") {
  const describe::Model model = test::tiny_gpt();
  const describe::Plan plan = test::fp32_plan();
  TrainingJob job = job_of(model, plan);
  job.device = [] {
    const auto updates = std::make_shared<std::atomic<int>>(0);
    return test::hooked_device(make_cpu_device({}),
                               [updates](const Kernel& kernel) {
                                 if (kernel.op == program::Op::scale_update && ++*updates == 2)
                                   throw DeviceError("no more");
                               },
                               {});
  };
  CHECK_THROWS_WITH_AS(
      run_ranks(1, ThreadOptions{}, [&](Communicator& world) { train(job, world); }),
      doctest::Contains("rank 0: step 2, scale_update in step: no more (finished last: gradient_norm of "),
      DeviceError);
}

// 12,000 steps once grew a run by 35 MB.
TEST_CASE("what a rank notes of a step's collectives is as long after many steps as after one") {
  const describe::Model model = test::tiny_gpt();
  describe::Plan plan = test::fp32_plan();
  plan.data_parallel = 2;
  plan.zero_stage = 3;
  run_ranks(2, ThreadOptions{}, [&](Communicator& world) {
    const TrainingJob job = job_of(model, plan);
    RankPlan own = job.plan(position_of(world.rank(), 1));
    Rank rank(std::move(own.program), own.arena, job.device(), world);
    rank.initialize(normal_initialization(1, model.layers));
    BatchShape shape = job.batches;
    shape.data_parallel_rank = world.rank();
    const auto batches = seeded_batches(shape, model.vocabulary, 1);
    const auto noted = [&] {
      return rank.interpreter().calls(static_cast<std::size_t>(program::Group::data_parallel)).size();
    };
    std::vector<double> waiting(rank.program().code.size());
    CHECK(noted() == 0);
    rank.step(job.settings, *batches);
    const std::size_t of_a_step = noted();
    REQUIRE(of_a_step > 0);
    for (int step = 0; step < 20; ++step) {
      rank.step(job.settings, *batches);
      add_waiting(waiting, rank);
    }
    CHECK(noted() == of_a_step);
    CHECK(rank.interpreter().profile().of_instruction.size() == rank.program().code.size());
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      CHECK(waiting[i] >= 0);
      if (rank.program().code[i].group == program::Group::none) CHECK(waiting[i] == 0);
    }
  });
}
