#include "planner/predict/time.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <utility>

#include "planner/predict/schedule.hpp"
#include "planner/predict/trace.hpp"
#include "planner/program/compile.hpp"
#include "tests/support/plans.hpp"

using namespace zeroplan;
using predict::KernelRates;
using predict::Ready;
using predict::StepTime;
using program::Group;
using program::Instruction;
using program::Op;
using program::Phase;
using program::Stream;

namespace {

describe::Cluster eight_a100() { return describe::resolve_cluster("ndm-a100-v4", {}, 8); }

KernelRates some_rates() {
  KernelRates rates;
  rates.matmul_flops_per_s = 250e12;
  rates.attention_flops_per_s = 150e12;
  rates.memory_bytes_per_s = 1.7e12;
  rates.multiprocessors = 108;
  rates.kernel_gap_s = 2e-6;
  rates.host_issue_s = 5e-6;
  return rates;
}

// A few instructions with seconds written beside them.
class Script {
 public:
  predict::StepCosts costs;

  void add(Op op, double seconds, Group group = Group::none, std::int16_t ahead = 0) {
    Instruction instruction;
    instruction.op = op;
    instruction.group = group;
    instruction.stream = group == Group::data_parallel ? Stream::communication : Stream::compute;
    instruction.operands[1].layer_offset = ahead;
    program_.code.push_back(instruction);
    costs.seconds.push_back(seconds);
    costs.launches.push_back(1);
  }

  // The last instruction runs there instead.
  void on(Stream stream) { program_.code.back().stream = stream; }

  predict::Clocks run(Phase phase) const {
    predict::Clocks clocks;
    const predict::Schedule schedule(program_, costs);
    for (std::size_t i = 0; i < program_.code.size(); ++i) schedule.run(clocks, i, phase);
    return clocks;
  }

 private:
  program::StepProgram program_;
};

}  // namespace

TEST_CASE("time: the algebra gives what clocks give that walk every layer and micro-batch") {
  int plans = 0;
  for (const describe::Model& model : {test::small_gpt(), test::small_llama()}) {
    test::for_each_plan(model, [&](const std::string& name, const describe::Plan& plan) {
      if (plan.devices() > 8 || 8 % plan.devices() != 0 || plans++ % 3 != 0) return;
      const program::StepProgram program = program::compile(model, plan);
      const describe::Cluster cluster = describe::resolve_cluster("ndm-a100-v4", {}, plan.devices());
      CAPTURE(name);
      const KernelRates rates = some_rates();
      CHECK(predict::read_time(program, cluster, rates).seconds ==
            doctest::Approx(predict::read_trace(program, cluster, rates).step_seconds).epsilon(1e-9));
    });
  }
  CHECK(plans >= 200);
}

// Gathers that are a little slower or faster than a layer's kernels overtake them late, early or never.
TEST_CASE("time: a stream that overtakes another after many layers is waited for from there on") {
  describe::Plan plan = test::plain_plan();
  plan.data_parallel = 64;
  plan.zero_stage = 3;
  plan.sequence = 512;
  plan.precision = describe::Precision::bf16;
  describe::Model model = describe::resolve_model("gpt2-xl");
  model.layers = 200;
  const program::StepProgram program = program::compile(model, plan);
  const describe::Cluster cluster = describe::resolve_cluster("dgx1", 8, {});
  KernelRates rates = some_rates();
  for (rates.matmul_flops_per_s = 5e12; rates.matmul_flops_per_s < 200e12; rates.matmul_flops_per_s *= 1.05) {
    CAPTURE(rates.matmul_flops_per_s);
    CHECK(predict::read_step_seconds(program, cluster, rates) ==
          doctest::Approx(predict::read_trace(program, cluster, rates).step_seconds).epsilon(1e-9));
  }
}

TEST_CASE("time: reductions run beside backward, and slow it down") {
  Script script;
  script.add(Op::matmul_input_gradient, 3);
  script.add(Op::reduce_scatter, 5, Group::data_parallel);
  script.add(Op::matmul_input_gradient, 4);
  predict::Clocks clocks = script.run(Phase::backward);
  CHECK(clocks.at(Ready::compute) == 7);
  CHECK(clocks.at(Ready::communication) == 8);
  script.costs.slowdown = 0.2;
  CHECK(script.run(Phase::backward).at(Ready::compute) == 8);
}

TEST_CASE("time: what adds a reduced partition follows its collective") {
  Script script;
  script.add(Op::reduce_scatter, 5, Group::data_parallel);
  script.add(Op::accumulate, 2);
  script.on(Stream::communication);
  script.add(Op::matmul_input_gradient, 4);
  predict::Clocks clocks = script.run(Phase::backward);
  CHECK(clocks.at(Ready::compute) == 4);
  CHECK(clocks.at(Ready::communication) == 7);
}

TEST_CASE("time: kernels wait for traffic and copies on their own stream") {
  Script script;
  script.add(Op::matmul_input_gradient, 3);
  script.add(Op::reduce_scatter, 5, Group::data_parallel);
  script.on(Stream::compute);
  script.add(Op::copy_to_host, 2);
  script.add(Op::matmul_input_gradient, 4);
  script.costs.slowdown = 0.2;  // nothing runs beside it
  CHECK(script.run(Phase::backward).at(Ready::compute) == 14);

  Script beside;
  beside.add(Op::copy_to_host, 2);
  beside.on(Stream::to_host);
  beside.add(Op::matmul_input_gradient, 4);
  CHECK(beside.run(Phase::backward).at(Ready::compute) == 4);
}

TEST_CASE("time: a gather is waited for by the layer that needs it") {
  Script now;
  now.add(Op::all_gather, 5, Group::data_parallel);
  now.add(Op::matmul, 3);
  CHECK(now.run(Phase::forward).at(Ready::compute) == 8);

  Script ahead;
  ahead.add(Op::all_gather, 5, Group::data_parallel);     // this layer
  ahead.add(Op::all_gather, 5, Group::data_parallel, 1);  // the next, beside it
  ahead.add(Op::matmul, 3);                               // from 5 to 8
  ahead.add(Op::all_gather, 1, Group::data_parallel, 1);  // from 10
  ahead.add(Op::matmul, 3);                               // needs what came at 10
  CHECK(ahead.run(Phase::forward).at(Ready::compute) == 13);
}

TEST_CASE("time: kernels wait for sums over tensor-parallel ranks, but for those beside the next kernel") {
  Script waits;
  waits.add(Op::matmul, 2);
  waits.add(Op::all_reduce, 5, Group::tensor_parallel);
  waits.add(Op::matmul, 3);
  CHECK(waits.run(Phase::forward).at(Ready::compute) == 10);

  const auto beside = [](double kernel) {
    Script script;
    script.add(Op::matmul_input_gradient, 2);
    script.add(Op::all_reduce, 5, Group::tensor_parallel);
    script.on(Stream::tensor);
    script.add(Op::matmul_weight_gradient, kernel);
    script.add(Op::norm_backward, 1);
    return script.run(Phase::backward).at(Ready::compute);
  };
  CHECK(beside(3) == 8);
  CHECK(beside(6) == 9);
}

TEST_CASE("time: on one stream everything waits for everything, without gaps") {
  Script script;
  script.costs.one_stream = true;
  script.costs.kernel_gap_s = script.costs.host_issue_s = 100;
  script.add(Op::matmul, 2);
  script.add(Op::reduce_scatter, 5, Group::data_parallel);
  script.add(Op::copy_to_host, 4);
  CHECK(script.run(Phase::backward).at(Ready::compute) == 11);
}

TEST_CASE("time: what is exposed adds up to the step") {
  describe::Plan plan = test::plain_plan();
  plan.sequence = 1024;
  for (const std::pair<int, int>& degrees : {std::pair{0, 1}, {1, 2}, {2, 4}, {3, 1}, {3, 8}}) {
    const int stage = degrees.first;
    const int tensor = degrees.second;
    plan.zero_stage = stage;
    plan.tensor_parallel = tensor;
    plan.data_parallel = 8 / tensor;
    const auto program = program::compile(describe::resolve_model("gpt2-large"), plan);
    const StepTime time = predict::read_time(program, eight_a100(), some_rates());
    CAPTURE(stage);
    CHECK(std::accumulate(time.exposed_seconds.begin(), time.exposed_seconds.end(), 0.0) ==
          doctest::Approx(time.seconds));
    for (const double part : time.exposed_seconds) CHECK(part >= 0);
    CHECK(time.exposed(predict::ExposedPart::data_parallel) <= time.data_parallel_seconds);
    CHECK(time.exposed(predict::ExposedPart::host_copies) == 0);
    CHECK((time.exposed(predict::ExposedPart::tensor_parallel) > 0) == (tensor > 1));
  }
}

TEST_CASE("trace: nothing runs on a stream before what is there is done, and every layer is listed") {
  describe::Plan plan = test::plain_plan();
  plan.data_parallel = 8;
  plan.zero_stage = 3;
  plan.gradient_accumulation = 9;
  const auto program = program::compile(test::small_gpt(), plan);
  const predict::Trace trace = predict::read_trace(program, eight_a100(), some_rates(), 4);
  CHECK(trace.micro_batches == 9);
  CHECK(trace.left_out == 5);
  std::array<double, predict::kReady> end{};
  std::set<std::int64_t> layers, micro_batches;
  for (const predict::TraceEvent& event : trace.events) {
    double& stream = end[static_cast<std::size_t>(event.stream)];
    CHECK(event.start_seconds >= stream - 1e-12);
    stream = event.start_seconds + event.seconds;
    CHECK(stream <= trace.step_seconds + 1e-12);
    layers.insert(event.layer);
    micro_batches.insert(event.micro_batch);
  }
  CHECK(layers.size() == static_cast<std::size_t>(program.layers) + 1);
  CHECK(micro_batches == std::set<std::int64_t>{0, 1, 2, 8});
}

TEST_CASE("time: a step takes at least the longest stream and at most all of them in turn") {
  describe::Plan plan = test::plain_plan();
  plan.data_parallel = 8;
  plan.micro_batch = 4;
  const describe::Model model = describe::resolve_model("gpt2-xl");
  plan.sequence = 1024;
  for (int stage = 0; stage <= 3; ++stage) {
    plan.zero_stage = stage;
    const StepTime time = predict::read_time(program::compile(model, plan), eight_a100(), some_rates());
    CAPTURE(stage);
    CHECK(time.seconds >= time.compute_seconds);
    CHECK(time.seconds <= time.compute_seconds + time.data_parallel_seconds);
    CHECK(time.data_parallel_seconds > 0);
    CHECK(time.tensor_parallel_seconds == 0);
  }
}

TEST_CASE("time: an issuing host that is slower than the kernels sets the pace") {
  const describe::Plan plan = test::plain_plan();
  const program::StepProgram program = program::compile(test::small_gpt(), plan);
  KernelRates rates = some_rates();
  const double fast = predict::read_time(program, eight_a100(), rates).seconds;
  rates.host_issue_s = 1e-3;  // far above every small kernel
  const double slow = predict::read_time(program, eight_a100(), rates).seconds;
  rates.host_issue_s = 2e-3;
  const double slower = predict::read_time(program, eight_a100(), rates).seconds;
  CHECK(slow > 50 * fast);
  CHECK(slower / slow == doctest::Approx(2).epsilon(0.01));
}

TEST_CASE("time: large products run at the attainable rate, small and skinny ones below it") {
  const KernelRates rates = some_rates();
  program::StepProgram program;
  program.buffers.resize(1);
  program.buffers[0].type = program::DataType::fp16;
  const auto rate = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    Instruction product;
    product.op = Op::matmul;
    product.dims = {m, n, k};
    for (program::Operand& operand : product.operands) operand.buffer = 0;
    return 2.0 * static_cast<double>(m * n) * static_cast<double>(k) /
           predict::kernel_seconds(rates, program, product);
  };
  CHECK(rate(16384, 12288, 12288) > 0.95 * rates.matmul_flops_per_s);
  CHECK(rate(16384, 12288, 12288) <= rates.matmul_flops_per_s);
  CHECK(rate(512, 512, 512) < 0.5 * rates.matmul_flops_per_s);
  // One row: the weights are read once, at the rate of memory.
  CHECK(rate(1, 8192, 8192) == doctest::Approx(rates.memory_bytes_per_s).epsilon(0.01));
}
