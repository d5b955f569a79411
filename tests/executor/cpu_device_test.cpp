#include "executor/device/cpu/cpu_device.hpp"

#include <doctest/doctest.h>

#include <string>

#include "executor/error.hpp"
#include "tests/executor/step_table.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;
using namespace zeroplan::executor::test;

namespace {

Values run_weight_gradients(Device& device, const std::vector<unsigned>& micro_batches) {
  KernelHarness h(device);
  const MatmulShape s{37, 210, 800};
  const Tensor dw = h.zeros(index(s.n * s.k), DataType::fp32);
  const Tensor db = h.zeros(index(s.n), DataType::fp32);
  for (const unsigned seed : micro_batches) {
    h.run(Op::matmul_weight_gradient, {s.m, s.n, s.k},
          {h.upload(random_values(s.m * s.n, seed), DataType::fp32),
           h.upload(random_values(s.m * s.k, seed + 100), DataType::fp32), dw, db});
  }
  Values result = h.download(dw);
  const Values bias = h.download(db);
  result.insert(result.end(), bias.begin(), bias.end());
  return result;
}

Values run_norm_gradients(Device& device, const std::vector<unsigned>& micro_batches) {
  KernelHarness h(device);
  const std::int64_t rows = 41;
  const std::int64_t width = 53;
  const Tensor gradient = h.zeros(index(2 * width), DataType::fp32);
  const Tensor parameters = h.upload(random_values(2 * width, 5), DataType::fp32);
  for (const unsigned seed : micro_batches) {
    const Tensor x = h.upload(random_values(rows * width, seed), DataType::fp32);
    const Tensor dy = h.upload(random_values(rows * width, seed + 100), DataType::fp32);
    const Tensor statistics = h.zeros(index(2 * rows), DataType::fp32);
    h.run(Op::norm_forward, {rows, width},
          {x, parameters, h.zeros(index(rows * width), DataType::fp32), statistics});
    h.run(Op::norm_backward, {rows, width}, {dy, x, parameters, statistics, dy, gradient}, kOverwrite);
  }
  return h.download(gradient);
}

Values run_embedding_gradients(Device& device, const std::vector<unsigned>& micro_batches) {
  KernelHarness h(device);
  const std::int64_t tokens = 64;
  const std::int64_t width = 19;
  const Tensor table = h.zeros(index(4 * width), DataType::fp32);
  const Tensor positions = h.zeros(index(16 * width), DataType::fp32);
  for (const unsigned seed : micro_batches) {
    std::vector<std::int32_t> indices;
    for (const double value : random_values(tokens, seed))
      indices.push_back(static_cast<std::int32_t>(2 + 2 * value));
    h.run(Op::embedding_backward, {tokens, width, 4, 0},
          {h.upload(random_values(tokens * width, seed + 100), DataType::fp32), h.upload_integers(indices),
           table, positions},
          0, 16);
  }
  Values result = h.download(table);
  const Values more = h.download(positions);
  result.insert(result.end(), more.begin(), more.end());
  return result;
}

Values run_attention(Device& device) {
  KernelHarness h(device);
  const AttentionShape s{2, 130, 4, 2, 16};
  const AttentionInputs inputs = attention_inputs(s, false, DataType::fp32);
  const Tensor packed = h.upload(inputs.packed, DataType::fp32);
  const Tensor dy = h.upload(inputs.dy, DataType::fp32);
  const Tensor context = h.zeros(inputs.dy.size(), DataType::fp32);
  const Tensor log_sum_exp = h.zeros(index(s.tokens() * s.heads), DataType::fp32);
  const Tensor dots = h.zeros(index(s.tokens() * s.heads), DataType::fp32);
  const Tensor gradient = h.zeros(inputs.packed.size(), DataType::fp32);
  const std::array<std::int64_t, 4> dims = {s.sequences, s.sequence, s.heads, s.head_dim};
  h.run(Op::attention_forward, dims, {packed, {}, context, log_sum_exp}, 0, s.kv_heads);
  h.run(Op::attention_row_dot, dims, {dy, context, dots}, 0, s.kv_heads);
  h.run(Op::attention_backward, dims, {dy, packed, {}, log_sum_exp, dots, gradient}, 0, s.kv_heads);
  return h.download(gradient);
}

std::string refusal(Device& device, const Kernel& kernel) {
  try {
    device.execute(kernel, program::Stream::compute, {});
  } catch (const DeviceError& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("the device counts 2 m n k for the products that it computed") {
  const auto device = make_cpu_device({.threads = 2});
  CHECK(device->product_flops() == 0);
  KernelHarness h(*device);
  // Larger than a tile, and converted from 16 bits piece by piece along k.
  const MatmulShape s{301, 517, 709};
  for (const DataType type : {DataType::fp32, DataType::bf16}) {
    const Flops before = device->product_flops();
    h.run(Op::matmul, {s.m, s.n, s.k},
          {h.zeros(index(s.m * s.k), type), h.zeros(index(s.n * s.k), type), Tensor{},
           h.zeros(index(s.m * s.n), type)});
    CHECK(device->product_flops() - before == 2.0 * 301 * 517 * 709);
  }
}

TEST_CASE("cpu device: the table of kernels") {
  for (const int threads : {1, 3}) {
    const std::unique_ptr<Device> device = make_cpu_device({threads});
    for (const KernelCase& kernel_case : kernel_table()) {
      CAPTURE(threads);
      CAPTURE(kernel_case.name);
      kernel_case.check(*device);
    }
    CHECK(device->workspace_bytes() > 0);
    CHECK(device->workspace_bytes() < Bytes{threads} * 8 * kMiB);
  }
}

// float addition in the order of the calls, from each call's own gradient: what ranks that add theirs in
// order compute.
TEST_CASE("cpu device: accumulating micro-batches gives the bits of adding their gradients") {
  const std::unique_ptr<Device> device = make_cpu_device({2});
  for (const auto& run : {run_weight_gradients, run_norm_gradients, run_embedding_gradients}) {
    const Values together = run(*device, {1, 2, 3});
    Values apart = run(*device, {1});
    for (const unsigned seed : {2U, 3U}) {
      const Values own = run(*device, {seed});
      for (std::size_t i = 0; i < apart.size(); ++i) {
        apart[i] = static_cast<double>(static_cast<float>(apart[i]) + static_cast<float>(own[i]));
      }
    }
    CHECK(together == apart);
  }
}

TEST_CASE("cpu device: the number of threads changes no bit") {
  const std::unique_ptr<Device> one = make_cpu_device({1});
  const std::unique_ptr<Device> five = make_cpu_device({5});
  CHECK(run_weight_gradients(*one, {1}) == run_weight_gradients(*five, {1}));
  CHECK(run_norm_gradients(*one, {1, 2}) == run_norm_gradients(*five, {1, 2}));
  CHECK(run_embedding_gradients(*one, {1}) == run_embedding_gradients(*five, {1}));
  CHECK(run_attention(*one) == run_attention(*five));
}

// ZeRO updates an element wherever its partition puts it.
TEST_CASE("cpu device: an update's bits do not depend on where the element is") {
  const std::unique_ptr<Device> device = make_cpu_device({1});
  const std::size_t count = 101;
  const auto update = [&](std::size_t first) {
    KernelHarness h(*device);
    h.settings.learning_rate = 0.01F;
    h.settings.step = 7;
    const auto part = [&](unsigned seed, double shift) {
      Values values = random_values(count, seed);
      for (double& value : values) value += shift;
      return h.upload(Values(values.begin() + static_cast<std::ptrdiff_t>(first), values.end()),
                      DataType::fp32);
    };
    const Tensor weights = part(1, 0);
    h.run(Op::optimizer_update, {weights.elements, weights.elements},
          {part(2, 0), {}, weights, part(3, 0), part(4, 1)});
    return h.download(weights);
  };
  const Values whole = update(0);
  for (const std::size_t first : {1U, 2U, 5U, 13U, 97U, 100U}) {
    CHECK(update(first) == Values(whole.begin() + static_cast<std::ptrdiff_t>(first), whole.end()));
  }
}

TEST_CASE("cpu device: memory is zeroed, and an impossible size is refused") {
  const std::unique_ptr<Device> device = make_cpu_device({});
  for (const Bytes bytes : {Bytes{0}, Bytes{1}, Bytes{4097}}) {
    std::byte* block = device->allocate(bytes, program::Space::device);
    REQUIRE(block != nullptr);
    for (Bytes i = 0; i < bytes; ++i) CHECK(block[i] == std::byte{0});
    device->deallocate(block, bytes, program::Space::device);
  }
  CHECK_THROWS_AS(device->allocate(Bytes{1} << 60, program::Space::device), DeviceError);
  CHECK_THROWS_AS(device->allocate(-1, program::Space::host), DeviceError);
  CHECK_THROWS_AS(make_cpu_device({0}), DeviceError);
}

TEST_CASE("cpu device: what it does not have is refused by name") {
  const std::unique_ptr<Device> device = make_cpu_device({});
  for (const Op op : {Op::route_tokens, Op::combine_tokens, Op::combine_backward, Op::route_backward,
                      Op::all_reduce, Op::acquire}) {
    Kernel kernel;
    kernel.op = op;
    CHECK(refusal(*device, kernel).find(program::name_of(op)) != std::string::npos);
  }
}

TEST_CASE("cpu device: operands that are missing, too small or of a wrong type are refused") {
  const std::unique_ptr<Device> device = make_cpu_device({});
  KernelHarness h(*device);
  Kernel kernel;
  kernel.op = Op::matmul;
  kernel.dims = {3, 5, 7};
  kernel.operands = {h.zeros(21, DataType::fp32), h.zeros(35, DataType::fp32), Tensor{},
                     h.zeros(15, DataType::fp32)};
  CHECK(refusal(*device, kernel).empty());
  kernel.operands[3] = {};
  CHECK(refusal(*device, kernel) == "cpu device: matmul: operand 3 (y) is missing");
  kernel.operands[3] = h.zeros(14, DataType::fp32);
  CHECK(refusal(*device, kernel) == "cpu device: matmul: operand 3 (y) has 14 elements where 15 are needed");
  kernel.operands[3] = h.zeros(15, DataType::int32);
  CHECK(refusal(*device, kernel) ==
        "cpu device: matmul: operand 3 (y) is int32, expected fp32, fp16 or bf16");

  Kernel rotary;
  rotary.op = Op::rotary_forward;
  rotary.dims = {2, 1, 2};
  rotary.operands[0] = h.zeros(4, DataType::fp32);
  CHECK(refusal(*device, rotary).find("sequence") != std::string::npos);
}
