#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "executor/device/cuda/cuda_device.hpp"
#include "executor/step_scalars.hpp"
#include "runtime/machine.hpp"
#include "tests/executor/kernel_harness.hpp"
#include "tests/executor/kernel_table.hpp"

// Two instructions of a recording that run as one kernel: the memory is as after both, and they are one only where that
// can be.

using namespace zeroplan::executor;
using namespace zeroplan::executor::test;
using zeroplan::emulation::Gpu;
using zeroplan::emulation::Machine;
namespace program = zeroplan::program;
using program::Stream;

namespace {

using Raw = std::vector<std::byte>;

// Two instructions on a device of their own, with tensors that live as long as it.
struct Pair {
  explicit Pair(int sm = 90)
      : machine({.gpus = {Gpu{.sm = sm}}, .stuck_seconds = 5}),
        device(make_cuda_device({.ordinal = 0, .threads = 1})),
        tensors(*device) {}
  ~Pair() { CHECK(machine.problems() == std::vector<std::string>()); }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  std::vector<Raw> downloaded() const {
    std::vector<Raw> all;
    for (const Tensor& result : results) {
      Raw& bytes = all.emplace_back(static_cast<std::size_t>(result.bytes()));
      device->download(bytes, result.data);
    }
    return all;
  }
  void spoil() {
    for (const Tensor& result : results) {
      const Raw bytes(static_cast<std::size_t>(result.bytes()), std::byte{0x7f});
      device->upload(result.data, bytes, Stream::compute);
    }
  }
  std::vector<Raw> run_apart() {
    spoil();
    device->execute(first, Stream::compute, {});
    device->execute(second, Stream::compute, {});
    device->synchronize();
    return downloaded();
  }
  std::vector<Raw> run_recorded() {
    spoil();
    device->begin_recording(Stream::compute);
    device->execute(first, Stream::compute, {});
    device->execute(second, Stream::compute, {});
    const Device::Recording recording = device->end_recording();
    device->replay(recording, Stream::compute, {});
    device->synchronize();
    device->forget_recordings();
    return downloaded();
  }
  // How often a kernel of this name has run.
  std::ptrdiff_t runs(const std::string& name) const {
    const auto history = machine.history();
    return std::count_if(history.begin(), history.end(), [&](const std::string& operation) {
      return operation.find(name) != std::string::npos;
    });
  }

  Machine machine;
  std::unique_ptr<Device> device;
  KernelHarness tensors;
  StepSettings settings{.step = 3, .dropout = 0.25F};
  Kernel first, second;
  std::vector<Tensor> results;  // of both
};

struct RowCase {
  std::int64_t rows, width;
  bool has_mask, is_centred;
};

void set_residual_and_norm(Pair& pair, const RowCase& c, DataType type, DataType sum_type) {
  KernelHarness& h = pair.tensors;
  const std::int64_t count = c.rows * c.width;
  const auto elements = static_cast<std::size_t>(count);
  Values scalars(program::kScalars, 0);
  scalars[static_cast<std::size_t>(kStepNumber)] = 3;
  const Tensor sum = h.zeros(elements, sum_type), y = h.zeros(elements, type);
  const Tensor mask = c.has_mask ? h.zeros(elements, DataType::uint8) : Tensor{};
  const Tensor statistics =
      h.zeros(static_cast<std::size_t>((c.is_centred ? 2 : 1) * c.rows), DataType::fp32);
  const Values parameters = random_values((c.is_centred ? 2 : 1) * c.width, 4);
  pair.first.op = Op::residual_add;
  pair.first.dims = {c.rows, c.width};
  pair.first.operands = {h.upload(random_values(count, 1, type), type),
                         h.upload(random_values(c.width, 2, type), type),
                         h.upload(random_values(count, 3, sum_type), sum_type), mask, sum};
  pair.first.scalars = h.upload(scalars, DataType::fp32);
  pair.first.mask = {7, {.first = 8}};
  pair.second.op = Op::norm_forward;
  pair.second.dims = {c.rows, c.width, 0, 0};
  pair.second.operands = {sum, h.upload(parameters, DataType::fp32), y, statistics};
  pair.first.settings = pair.second.settings = &pair.settings;
  pair.results = {sum, y, statistics};
  if (mask) pair.results.push_back(mask);
}

// Returns the product's dims.
MatmulShape set_product_and_gelu(Pair& pair, DataType type, bool has_bias, std::int64_t n = 24) {
  KernelHarness& h = pair.tensors;
  const MatmulShape s{5, n, 16};
  const Tensor before = h.zeros(static_cast<std::size_t>(s.m * s.n), type);
  const Tensor after = h.zeros(static_cast<std::size_t>(s.m * s.n), type);
  pair.first.op = Op::matmul;
  pair.first.dims = {s.m, s.n, s.k};
  pair.first.operands = {h.upload(random_values(s.m * s.k, 1, type), type),
                         h.upload(random_values(s.n * s.k, 2, type), type),
                         has_bias ? h.upload(random_values(s.n, 3, type), type) : Tensor{}, before};
  pair.second.op = Op::activation_forward;
  pair.second.dims = {s.m, s.n};
  pair.second.extra = static_cast<std::uint32_t>(program::ActivationKind::gelu_tanh);
  pair.second.operands = {before, after};
  pair.results = {before, after};
  return s;
}

}  // namespace

TEST_CASE("joined: a sum and its norm are one kernel, with the bits of two") {
  for (const RowCase& c : {RowCase{5, 64, false, true},
                           {5, 64, true, false},
                           {3, 24, true, true},
                           {2, 1000, false, false},
                           {3, 1504, true, true},
                           {2, 2048, true, false}}) {
    for (const DataType type : real_types()) {
      for (const DataType sum_type : {type, DataType::fp32}) {
        CAPTURE(c.width);
        CAPTURE(name_of_type(type));
        CAPTURE(name_of_type(sum_type));
        Pair pair;
        set_residual_and_norm(pair, c, type, sum_type);
        const std::vector<Raw> apart = pair.run_apart();
        CHECK(pair.runs("add_and_normalize") == 0);
        CHECK(pair.run_recorded() == apart);
        CHECK(pair.runs("add_and_normalize") == 1);
        CHECK(pair.runs("normalize<") == 1 + 1);  // the one of before, and the joined one's name
      }
    }
  }
}

TEST_CASE("joined: a product and GELU are one call, GELU of what was not rounded yet") {
  for (const DataType type : {DataType::bf16, DataType::fp16}) {
    for (const bool has_bias : {true, false}) {
      for (const int sm : {90, 100}) {
        CAPTURE(name_of_type(type));
        CAPTURE(has_bias);
        Pair pair(sm);
        const MatmulShape s = set_product_and_gelu(pair, type, has_bias);
        const std::vector<Raw> apart = pair.run_apart();
        CHECK(pair.runs("activate") == 1);
        const std::vector<Raw> joined = pair.run_recorded();
        CHECK(pair.runs("activate") == 1);
        CHECK(joined[0] == apart[0]);
        KernelHarness& h = pair.tensors;
        const auto& [x, weight, bias, before, none, nothing] = pair.first.operands;
        Values want = matmul(h.download(x), h.download(weight), bias ? h.download(bias) : Values{}, s);
        for (double& value : want) {
          const double cubic = value + 0.044715 * value * value * value;
          value = 0.5 * value * (1 + std::tanh(std::sqrt(2 / M_PI) * cubic));
        }
        expect_close("y", h.download(pair.results[1]), want, type);
        CHECK(pair.device->product_flops() == 2 * 2 * s.m * s.n * s.k);
      }
    }
  }
}

TEST_CASE("joined: instructions stay two where one kernel could not do it, or would be slower") {
  const auto stays_two = [](Pair& pair, const std::string& joined, std::ptrdiff_t before) {
    const std::vector<Raw> apart = pair.run_apart();
    CHECK(pair.run_recorded() == apart);
    CHECK(pair.runs(joined) == before);
  };
  const RowCase rows{4, 64, false, true};
  SUBCASE("a norm of something else") {
    Pair pair;
    set_residual_and_norm(pair, rows, DataType::fp32, DataType::fp32);
    pair.second.operands[0] = pair.first.operands[2];
    stays_two(pair, "add_and_normalize", 0);
  }
  SUBCASE("a row that no block holds") {
    Pair pair;
    set_residual_and_norm(pair, {2, 16400, false, true}, DataType::fp32, DataType::fp32);
    stays_two(pair, "add_and_normalize", 0);
  }
  SUBCASE("rows without 16-byte accesses") {
    Pair pair;
    set_residual_and_norm(pair, {3, 17, true, true}, DataType::bf16, DataType::bf16);
    stays_two(pair, "add_and_normalize", 0);
  }
  SUBCASE("the norm's result begins inside what other rows still add") {
    Pair pair;
    set_residual_and_norm(pair, rows, DataType::fp32, DataType::fp32);
    const Tensor both = pair.tensors.upload(random_values(std::int64_t{5 * 64}, 9), DataType::fp32);
    pair.first.operands[0] = {both.data, both.type, 4 * 64};
    pair.second.operands[2] = {both.data + std::ptrdiff_t{64 * 4}, both.type, 4 * 64};
    pair.results.clear();
    pair.run_recorded();
    CHECK(pair.runs("add_and_normalize") == 0);
  }
  SUBCASE("GELU on Ampere and on consumer Blackwell, and in fp32") {
    for (const int sm : {80, 120}) {
      Pair pair(sm);
      set_product_and_gelu(pair, DataType::bf16, true);
      stays_two(pair, "activate", 2);
    }
    Pair wide;
    set_product_and_gelu(wide, DataType::fp32, true);
    stays_two(wide, "activate", 2);
  }
  SUBCASE("GELU of rows that are no multiple of eight") {
    Pair pair;
    set_product_and_gelu(pair, DataType::bf16, true, 20);
    stays_two(pair, "activate", 2);
  }
  SUBCASE("another activation") {
    Pair pair;
    set_product_and_gelu(pair, DataType::bf16, true);
    pair.second.extra = static_cast<std::uint32_t>(program::ActivationKind::gelu);
    stays_two(pair, "activate", 2);
  }
}

TEST_CASE("joined: a result may take the place of what is added, row by row") {
  Pair pair;
  set_residual_and_norm(pair, {9, 64, false, true}, DataType::bf16, DataType::bf16);
  const Values branch = random_values(std::int64_t{9 * 64}, 1, DataType::bf16);
  pair.second.operands[2] = pair.results[1] = pair.first.operands[0];
  std::array<std::vector<Raw>, 2> found;
  for (std::size_t i = 0; i < 2; ++i) {
    pair.results.clear();  // the branch is not spoiled
    pair.tensors.store(pair.first.operands[0], branch);
    (void)(i == 0 ? pair.run_apart() : pair.run_recorded());
    pair.results = {pair.first.operands[4], pair.second.operands[2]};
    found[i] = pair.downloaded();
  }
  CHECK(found[0] == found[1]);
  CHECK(pair.runs("add_and_normalize") == 1);
}
