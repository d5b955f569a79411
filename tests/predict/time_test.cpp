#include "planner/predict/time.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "planner/predict/links.hpp"
#include "planner/program/compile.hpp"
#include "tests/support/plans.hpp"
#include "tests/support/unrolled.hpp"

using namespace zeroplan;
using predict::KernelRates;
using predict::StepTime;
using program::Group;
using program::Instruction;
using program::Op;
using program::Phase;

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

// The same rules with a clock for each stream, instruction by instruction, every layer and micro-batch
// walked.
class Clocks {
 public:
  Clocks(const program::StepProgram& program, const describe::Cluster& cluster, const KernelRates& rates)
      : program_(program), cluster_(cluster), rates_(rates) {}

  double run() {
    test::for_each_executed(
        program_, [&](std::size_t, const Instruction& instruction, std::int64_t, std::int64_t, Phase phase) {
          if (phase == Phase::step && phase_ != Phase::step) {
            host_ = compute_ = communication_ = copies_ = gathered_ = latest();
          }
          phase_ = phase;
          if (instruction.op > Op::load_batch) one(instruction);
        });
    return latest();
  }

 private:
  double latest() const { return std::max({host_, compute_, communication_, copies_, gathered_}); }

  double collective(const Instruction& instruction) const {
    const std::size_t whole = instruction.op == Op::all_gather ? 1 : 0;
    const auto type = program_.buffers[instruction.operands[whole].buffer].type;
    return predict::collective_seconds(cluster_, predict::place_group(program_, instruction.group, cluster_),
                                       instruction.op,
                                       static_cast<double>(instruction.dims[0] * program::bytes_of(type)));
  }

  void one(const Instruction& instruction) {
    switch (instruction.op) {
      case Op::all_reduce:
      case Op::reduce_scatter:
      case Op::all_gather: {
        const double seconds = collective(instruction);
        if (instruction.group == Group::tensor_parallel || phase_ == Phase::step) {
          compute_ = std::max({compute_, host_, communication_}) + seconds;
          communication_ = compute_;
        } else if (instruction.op == Op::all_gather) {
          const double start = std::max({communication_, host_, compute_, copies_});
          const bool ahead = instruction.operands[1].layer_offset != 0;
          if (ahead) compute_ = std::max(compute_, gathered_);
          communication_ = gathered_ = start + seconds;
          if (!ahead) compute_ = std::max(compute_, communication_);
        } else {
          communication_ = std::max({communication_, host_, compute_}) + seconds;
        }
        return;
      }
      case Op::copy_to_host:
      case Op::copy_to_device:
      case Op::accumulate_host: {
        const auto type = program_.buffers[instruction.operands[0].buffer].type;
        copies_ = std::max(copies_, compute_);
        if (instruction.op == Op::accumulate_host) copies_ = std::max(copies_, communication_);
        copies_ += static_cast<double>(instruction.dims[0] * program::bytes_of(type)) / 26.28e9;
        if (phase_ == Phase::step) compute_ = std::max(compute_, copies_);
        return;
      }
      default: {
        host_ += rates_.host_issue_s;
        const double seconds = predict::kernel_seconds(rates_, program_, instruction) + rates_.kernel_gap_s;
        double& stream =
            instruction.op == Op::accumulate && phase_ == Phase::backward ? communication_ : compute_;
        stream = std::max(stream, host_) + seconds;
      }
    }
  }

  const program::StepProgram& program_;
  const describe::Cluster& cluster_;
  const KernelRates& rates_;
  Phase phase_ = Phase::setup;
  double host_ = 0, compute_ = 0, communication_ = 0, copies_ = 0, gathered_ = 0;
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
            doctest::Approx(Clocks(program, cluster, rates).run()).epsilon(1e-9));
    });
  }
  CHECK(plans >= 200);
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
