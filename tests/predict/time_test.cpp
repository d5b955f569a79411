#include "planner/predict/time.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "planner/predict/memory.hpp"
#include "planner/predict/schedule.hpp"
#include "planner/predict/trace.hpp"
#include "planner/predict/traffic.hpp"
#include "planner/program/compile.hpp"
#include "tests/support/plans.hpp"

using namespace zeroplan;
using predict::KernelRates;
using predict::StepTime;
using program::GroupKind;
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

// The groups of these programs.
constexpr program::GroupId kData = 0, kTensor = 1;
const std::vector<program::Group> kGroups{{GroupKind::data_parallel, 2}, {GroupKind::tensor_parallel, 2}};

// A few instructions with seconds and order written beside them. Each signals an event of its own.
class Script {
 public:
  Script() { program_.groups = kGroups; }

  predict::StepCosts costs;

  // After the instruction, `waits` are the indices of those that it waits for on other streams.
  void add(Op op, double seconds, Stream stream = Stream::compute,
           const std::vector<std::uint16_t>& waits = {}, program::GroupId group = program::kNoGroup) {
    Instruction instruction;
    instruction.op = op;
    instruction.group = group;
    instruction.stream = stream;
    program::Order& order = program_.order;
    order.mark_of.push_back(static_cast<std::uint16_t>(order.marks.size()));
    order.marks.push_back({static_cast<std::uint32_t>(order.waits.size()),
                           static_cast<std::uint16_t>(waits.size()),
                           static_cast<std::uint16_t>(program_.code.size())});
    for (const std::uint16_t event : waits) order.waits.push_back({event, 0});
    order.events.push_back({stream, 0});
    program_.code.push_back(instruction);
    costs.seconds.push_back(seconds);
    costs.launches.push_back(0);
  }
  void data_parallel(Op op, double seconds, const std::vector<std::uint16_t>& waits = {}) {
    add(op, seconds, Stream::communication, waits, kData);
  }

  double ready(Stream stream) const {
    const predict::Rows rows(program_);
    predict::Clocks clocks = run(rows);
    return clocks.at(rows.of(stream));
  }
  double host() const { return run(predict::Rows(program_)).at(predict::Rows::kHost); }

 private:
  predict::Clocks run(const predict::Rows& rows) const {
    predict::Clocks clocks(rows.count());
    const predict::Schedule schedule(program_, costs, rows);
    for (std::size_t i = 0; i < program_.code.size(); ++i) schedule.run(clocks, i, Phase::backward);
    return clocks;
  }

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
            doctest::Approx(predict::read_trace(program, cluster, rates).step_seconds).epsilon(1e-12));
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
          doctest::Approx(predict::read_trace(program, cluster, rates).step_seconds).epsilon(1e-12));
  }
}

// The same in loops of loops: layers in micro-batches, over traffic that is slower, as fast, or faster.
TEST_CASE("time: micro-batches that go on evenly do so only when all that is in them does") {
  describe::Model model = describe::resolve_model("gpt2-xl");
  model.layers = 40;
  describe::Plan plan = test::plain_plan();
  plan.data_parallel = 64;
  plan.sequence = 512;
  plan.precision = describe::Precision::bf16;
  const describe::Cluster cluster = describe::resolve_cluster("dgx1", 8, {});
  KernelRates rates = some_rates();
  for (plan.zero_stage = 0; plan.zero_stage <= 3; ++plan.zero_stage) {
    for (const std::string& engine : {std::string("native"), std::string("deepspeed")}) {
      plan.engine = describe::find_engine(engine);
      for (const std::int64_t accumulation : {2, 7, 30}) {
        plan.gradient_accumulation = accumulation;
        const program::StepProgram program = program::compile(model, plan);
        for (rates.matmul_flops_per_s = 5e12; rates.matmul_flops_per_s < 200e12;
             rates.matmul_flops_per_s *= 1.3) {
          CAPTURE(plan.zero_stage);
          CAPTURE(engine);
          CAPTURE(accumulation);
          CAPTURE(rates.matmul_flops_per_s);
          CHECK(predict::read_step_seconds(program, cluster, rates) ==
                doctest::Approx(predict::read_trace(program, cluster, rates).step_seconds).epsilon(1e-12));
        }
      }
    }
  }
}

TEST_CASE("time: reductions run beside backward, and slow it down") {
  Script script;
  script.add(Op::matmul_input_gradient, 3);
  script.data_parallel(Op::reduce_scatter, 5, {0});
  script.add(Op::matmul_input_gradient, 4);
  CHECK(script.ready(Stream::compute) == 7);
  CHECK(script.ready(Stream::communication) == 8);
  script.costs.slowdown = 0.2;
  CHECK(script.ready(Stream::compute) == 8);
}

TEST_CASE("time: an instruction waits for what the program says, and for nothing else") {
  Script script;
  script.data_parallel(Op::all_gather, 5);
  script.data_parallel(Op::all_gather, 5);
  script.add(Op::matmul, 3, Stream::compute, {0});  // from 5 to 8
  script.data_parallel(Op::all_gather, 1);          // from 10
  script.add(Op::copy_to_host, 2, Stream::to_host);
  script.add(Op::matmul, 3, Stream::compute, {1});
  CHECK(script.ready(Stream::compute) == 13);
  CHECK(script.ready(Stream::communication) == 11);
  CHECK(script.ready(Stream::to_host) == 2);
}

TEST_CASE("time: what is on the kernels' stream is waited for by them") {
  Script script;
  script.add(Op::matmul_input_gradient, 3);
  script.add(Op::reduce_scatter, 5, Stream::compute, {}, kData);
  script.add(Op::copy_to_host, 2);
  script.add(Op::matmul_input_gradient, 4);
  script.costs.slowdown = 0.2;  // nothing runs beside it
  CHECK(script.ready(Stream::compute) == 14);
}

TEST_CASE("time: a wait of age n is for the execution n before the youngest") {
  for (std::uint16_t age = 0; age < 4; ++age) {
    CAPTURE(age);
    program::StepProgram program;
    program.groups = kGroups;
    Instruction gather;
    gather.op = Op::all_gather;
    gather.group = kData;
    gather.stream = Stream::communication;
    program.code.assign(3, gather);
    Instruction product;
    product.op = Op::matmul;
    program.code.push_back(product);
    program.order.events.push_back({Stream::communication, age});
    program.order.waits.push_back({0, age});
    program.order.marks = {{}, {0, 0, 0}, {0, 1, program::Order::kNoEvent}};
    program.order.mark_of = {1, 1, 1, 2};
    predict::StepCosts costs;
    costs.seconds = {1, 2, 4, 10};
    costs.launches.resize(4);
    const predict::Rows rows(program);
    predict::Clocks clocks(rows.count());
    const predict::Schedule schedule(program, costs, rows);
    for (std::size_t i = 0; i < 4; ++i) schedule.run(clocks, i, Phase::forward);
    constexpr std::array<double, 4> kDone{7, 3, 1, 0};
    CHECK(clocks.at(rows.of(Stream::compute)) == 10 + kDone[age]);
  }
}

TEST_CASE("time: sums over tensor-parallel ranks hold the host that issues") {
  Script script;
  script.add(Op::matmul_input_gradient, 2);
  script.add(Op::all_reduce, 5, Stream::tensor, {0}, kTensor);
  CHECK(script.host() == 5);
  Script other;
  other.data_parallel(Op::all_reduce, 5);
  CHECK(other.host() == 0);
}

TEST_CASE("time: kernels cost the host an issue each, and their stream a gap after what they wait for") {
  Script script;
  script.costs.kernel_gap_s = 0.5;
  script.costs.host_issue_s = 1;
  script.data_parallel(Op::all_gather, 5);
  script.add(Op::matmul, 3, Stream::compute, {0});
  script.costs.launches[1] = 2;
  CHECK(script.host() == 2);
  CHECK(script.ready(Stream::compute) == 5 + 2 * 0.5 + 3);
}

TEST_CASE("time: on one stream everything waits for everything, without gaps") {
  Script script;
  script.costs.one_stream = true;
  script.costs.kernel_gap_s = script.costs.host_issue_s = 100;
  script.add(Op::matmul, 2);
  script.data_parallel(Op::reduce_scatter, 5, {0});
  script.add(Op::copy_to_host, 4, Stream::to_host);
  CHECK(script.ready(Stream::compute) == 11);
}

TEST_CASE("time: checkpoints that go to the host are never there for free") {
  const describe::Model model = describe::resolve_model("gpt2-xl");
  for (const char* machine : {"dgx-a100", "dgx-h100", "dgx1"}) {
    for (const char* engine : {"native", "fsdp2", "deepspeed", "megatron"}) {
      for (const std::int64_t micro_batch : {1, 4}) {
        describe::Plan plan = test::plain_plan();
        plan.engine = describe::find_engine(engine);
        plan.tensor_parallel = 4;
        plan.data_parallel = 2;
        plan.zero_stage = 1;
        plan.sequence = 1024;
        plan.micro_batch = micro_batch;
        plan.precision = describe::Precision::fp16;
        plan.recompute = describe::Recompute::full;
        plan.partition_activations = true;
        const describe::Cluster cluster = describe::resolve_cluster(machine, 1, {});
        const KernelRates rates = predict::kernel_rates(cluster.device, plan);
        const double kept = predict::read_step_seconds(program::compile(model, plan), cluster, rates);
        plan.offload_activations = true;
        CAPTURE(machine);
        CAPTURE(engine);
        CAPTURE(micro_batch);
        CHECK(kept > 0);
        CHECK(predict::read_step_seconds(program::compile(model, plan), cluster, rates) >=
              kept * (1 - 1e-12));
      }
    }
  }
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
  std::array<double, program::kStreams> end{};
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

TEST_CASE(
    "trace: memory reaches the peak, traffic adds up, and what an arrow leads to begins when its traffic is "
    "done") {
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    describe::Plan plan = test::plain_plan();
    plan.data_parallel = 8;
    plan.zero_stage = stage;
    plan.gradient_accumulation = 2;
    const auto program = program::compile(test::small_gpt(), plan);
    const predict::Trace trace = predict::read_trace(program, eight_a100(), some_rates(), 4);
    REQUIRE(trace.left_out == 0);
    const predict::MemoryProfile profile = predict::read_memory(program);
    Bytes highest = 0;
    double before = 0;
    for (const predict::MemoryMoment& moment : trace.memory) {
      CHECK(moment.seconds >= before);
      before = moment.seconds;
      highest = std::max(highest, moment.bytes());
    }
    CHECK(highest == profile.peak);
    double sent = 0;
    for (const predict::TraceEvent& event : trace.events) sent += event.group ? event.sent_bytes : 0;
    CHECK(sent == doctest::Approx(predict::read_traffic(program).data_parallel_bytes()));
    CHECK((stage != 3 || !trace.flows.empty()));  // below, the end of backward waits for all
    for (const predict::TraceFlow& flow : trace.flows) {
      const predict::TraceEvent& from = trace.events[flow.from];
      CHECK(from.bytes > 0);
      CHECK(trace.events[flow.to].start_seconds >= from.start_seconds + from.seconds - 1e-12);
    }
  }
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

TEST_CASE("time: a device's own measurements go before its architecture's figures") {
  const describe::Plan plan = test::plain_plan();
  describe::Device device = describe::find_device("a100-80gb");
  device.attained_matmul.clear();
  device.attained_attention.clear();
  const KernelRates before = predict::kernel_rates(device, plan);

  describe::AttainedMatmul product;
  product.fraction_of_peak = 0.5;
  device.attained_matmul = {product};
  CHECK(predict::kernel_rates(device, plan).matmul_flops_per_s == before.matmul_flops_per_s);  // not `used`
  product.used = true;
  device.attained_matmul.push_back(product);
  const double half = predict::kernel_rates(device, plan).matmul_flops_per_s;
  product.fraction_of_peak = 0.25;
  device.attained_matmul.push_back(product);
  CHECK(predict::kernel_rates(device, plan).matmul_flops_per_s == half);  // the best
  device.attained_matmul = {product};
  CHECK(predict::kernel_rates(device, plan).matmul_flops_per_s == doctest::Approx(half / 2));

  // FlashAttention 2 reached 179.5 TFLOPS for heads of 64 at a length of 8192: a kernel of that shape takes as long.
  describe::AttainedAttention attention;
  attention.head_dim = 64;
  attention.lengths = {8192};
  attention.tflops = {179.5};
  attention.used = true;
  device.attained_attention = {attention};
  describe::Plan unscaled = plan;
  unscaled.engine.edit().attention_fraction = 1;
  program::StepProgram program;
  program.layers = 1;
  program.buffers.resize(1);
  program.buffers[0].type = program::DataType::bf16;
  Instruction kernel;
  kernel.op = Op::attention_forward;
  kernel.dims = {1, 8192, 16, 64};
  for (program::Operand& operand : kernel.operands) operand.buffer = 0;
  const double causal_flops = 2.0 * 8192 * 8192 * 16 * 64;
  CHECK(predict::kernel_seconds(predict::kernel_rates(device, unscaled), program, kernel) ==
        doctest::Approx(causal_flops / 179.5e12).epsilon(1e-3));
}

TEST_CASE("time: a node's own processors go before those of the architecture host") {
  describe::Plan plan = test::plain_plan();
  plan.zero_stage = 2;
  plan.data_parallel = 8;
  plan.offload = describe::Offload::optimizer;
  const program::StepProgram program = program::compile(test::small_gpt(), plan);
  describe::Cluster cluster = eight_a100();
  const double before = predict::read_time(program, cluster, some_rates()).seconds;
  REQUIRE(describe::host_architecture().host_optimizer_gbytes_per_s.has_value());
  describe::Figure rate = *describe::host_architecture().host_optimizer_gbytes_per_s;
  edit(cluster.node).host_optimizer_gbytes_per_s = rate;
  CHECK(predict::read_time(program, cluster, some_rates()).seconds == before);
  rate.value /= 4;
  edit(cluster.node).host_optimizer_gbytes_per_s = rate;
  CHECK(predict::read_time(program, cluster, some_rates()).seconds > before);
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
