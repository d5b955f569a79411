#include "planner/describe/machine/calibration.hpp"

#include <doctest/doctest.h>

#include <string>

#include "planner/describe/machine/cluster.hpp"
#include "planner/error.hpp"

using namespace zeroplan;
using namespace zeroplan::describe;
using program::Op;

namespace {

const std::string kHead = R"(kind: device
name: box
schema: zeroplan.hardware/1
architecture: host
capacity: {host_memory: true}
)";

const std::string kKernels = R"(calibrated:
  - devices: 2
    source: a stopwatch
    kernels:
      - op: matmul
        operands: [bf16, bf16, none, fp32]
        m: [64, 256]
        n: [128]
        k: [128, 512, 2048]
        gflops: [10, 20, 30, 40, 50, 60]
        spread: [0, 0, 0, 0, 0, 0.25]
      - op: attention_forward
        operands: [fp32, none, fp32, fp32]
        sequence: [64]
        head_dim: [64]
        gflops: 7
      - op: activation_forward
        activation: gated_silu
        operands: [fp32, fp32]
        bytes: [1000, 1e6]
        gbytes_per_s: [1, 2]
)";

HardwareDescription read(const std::string& text) { return read_hardware_yaml(parse_yaml(text, "box.yaml")); }

std::string problem_of(const std::string& from, const std::string& to) {
  std::string text = kHead + kKernels;
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  text.replace(at, from.size(), to);
  try {
    read(text);
  } catch (const ConfigurationError& error) {
    return error.problems().front().text();
  }
  return "";
}

OperandTypes types(std::initializer_list<OperandTypes> list) {
  OperandTypes result = 0;
  for (std::size_t i = 0; i < program::kMaxOperands; ++i) {
    result |= (i < list.size() ? list.begin()[i] : kAbsentType) << (kBitsPerType * i);
  }
  return result;
}

}  // namespace

TEST_CASE("measured kernels are read with their sizes, types and spread") {
  const Device device = read(kHead + kKernels).device;
  REQUIRE(device.calibrated.size() == 1);
  const CalibratedRates& rates = device.calibrated.front();
  CHECK(rates.devices() == 2);
  CHECK(rates.source() == "a stopwatch");
  REQUIRE(rates.kernels().size() == 3);

  constexpr OperandTypes fp32 = 0, bf16 = 2;  // in the order of DataType
  const KernelKind product{Op::matmul, 0, types({bf16, bf16, kAbsentType, fp32})};
  const MeasuredKernel* kernel = rates.find(product);
  REQUIRE(kernel != nullptr);
  CHECK(kernel->kind == product);
  CHECK(kernel->axes[0] == std::vector<double>{64, 256});
  CHECK(kernel->axes[2] == std::vector<double>{128, 512, 2048});
  CHECK(kernel->rates == std::vector<double>{10e9, 20e9, 30e9, 40e9, 50e9, 60e9});
  CHECK(kernel->spread.back() == 0.25);
  const MeasuredKernel* activation = rates.find({Op::activation_forward, 4, types({fp32, fp32})});
  REQUIRE(activation != nullptr);
  CHECK(activation->kind.variant == static_cast<std::uint32_t>(program::ActivationKind::gated_silu));
  CHECK(activation->rates == std::vector<double>{1e9, 2e9});
  CHECK(rates.find({Op::norm_forward, 0, types({fp32})}) == nullptr);
}

TEST_CASE("the kind that differs least stands for one that was not measured") {
  const auto kernel = [](OperandTypes operands, std::uint32_t variant) {
    MeasuredKernel result;
    result.kind = {Op::activation_forward, variant, operands};
    result.axes[0] = {1};
    result.rates = {1};
    return result;
  };
  constexpr OperandTypes fp32 = 0, fp16 = 1, bf16 = 2;
  const OperandTypes all_fp16 = types({fp16, fp16});
  const CalibratedRates rates(
      1, {kernel(types({fp32, fp32}), 0), kernel(all_fp16, 0), kernel(types({fp32, fp32}), 4)}, "");
  const auto found = [&](OperandTypes operands, std::uint32_t variant) {
    return rates.find({Op::activation_forward, variant, operands})->kind;
  };
  CHECK(found(types({fp16, fp16, fp32}), 0).types == all_fp16);  // one operand more
  CHECK(found(types({fp16, bf16}), 0).types == all_fp16);        // one of another type
  CHECK(found(all_fp16, 4).variant == 4);                        // the function before the types
}

TEST_CASE("what is wrong with a measured kernel is told with its key") {
  const auto told = [](const std::string& from, const std::string& to, const std::string& expected) {
    const std::string problem = problem_of(from, to);
    CAPTURE(problem);
    CHECK(problem.find(expected) != std::string::npos);
  };
  told("op: matmul", "op: matmol", "nearest: matmul");
  told("op: matmul", "op: all_reduce", "calibrated[0].kernels[0].op: found \"all_reduce\"");
  told("[bf16, bf16, none, fp32]", "[bf17, bf16, none, fp32]", "nearest: bf16");
  told("[bf16, bf16, none, fp32]", "[bf16, bf16, bf16, bf16, bf16, bf16, bf16]", "found 7 types");
  told("m: [64, 256]", "m: [256, 64]", "expected sizes that ascend");
  told("m: [64, 256]", "m: []", "expected a number, or a list of numbers");
  told("        m: [64, 256]\n", "", "kernels[0].m: missing");
  told("gflops: [10, 20, 30, 40, 50, 60]", "gflops: [10, 20, 30]",
       "found 3 numbers, expected one for each of the 6");
  told("gflops: [10, 20, 30, 40, 50, 60]", "gflops: [10, 20, 30, 40, 50, 0]", "kernels[0].gflops");
  told("spread: [0, 0, 0, 0, 0, 0.25]", "spread: [0]", "found 1 numbers");
  told("spread: [0", "sprad: [0", "nearest: spread");
  told("activation: gated_silu", "activation: swish", "calibrated[0].kernels[2].activation");
  told("        activation: gated_silu\n", "", "kernels[2].activation: missing");
  told("gbytes_per_s: [1, 2]", "gflops: [1, 2]", "kernels[2].gbytes_per_s: missing");
  told("devices: 2", "devices: 0", "calibrated[0].devices");
  told("    source: a stopwatch\n", "", "calibrated[0].source: missing");
}
