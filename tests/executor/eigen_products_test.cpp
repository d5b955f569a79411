#include <doctest/doctest.h>
#include <fmt/format.h>

#include <Eigen/Core>
#include <initializer_list>
#include <vector>

#include "executor/device/cpu/cpu_device.hpp"
#include "executor/device/cpu/product.hpp"
#include "tests/executor/kernel_table.hpp"

// Matrix products of the CPU device beside Eigen's, in double precision: a library that shares nothing with the BLAS
// behind the device.
namespace {

using namespace zeroplan;
using namespace zeroplan::executor;
using namespace zeroplan::executor::test;

using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using FloatRowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr std::initializer_list<MatmulShape> kShapes{{1, 1, 1},     {1, 17, 3},    {2, 3, 5},
                                                     {7, 1, 31},    {31, 33, 1},   {32, 64, 128},
                                                     {33, 31, 257}, {61, 127, 67}, {129, 65, 97}};

RowMajor matrix(const Values& values, std::int64_t rows, std::int64_t columns) {
  return Eigen::Map<const RowMajor>(values.data(), rows, columns);
}

Values values_of(const RowMajor& matrix) { return {matrix.data(), matrix.data() + matrix.size()}; }

// A matrix with `more` unused columns behind each row, as panels of wider matrices have them.
FloatRowMajor padded(const RowMajor& matrix, Eigen::Index more) {
  FloatRowMajor result = FloatRowMajor::Constant(matrix.rows(), matrix.cols() + more, 1e30F);
  result.leftCols(matrix.cols()) = matrix.cast<float>();
  return result;
}

}  // namespace

TEST_CASE(
    "products beside Eigen's: both operands as they are and transposed, scaled, added, as parts of wider "
    "ones") {
  cpu::Scratch scratch;
  for (const MatmulShape s : kShapes) {
    const RowMajor a = matrix(random_values(s.m * s.k, 1), s.m, s.k);
    const RowMajor b = matrix(random_values(s.k * s.n, 2), s.k, s.n);
    const RowMajor before = matrix(random_values(s.m * s.n, 3), s.m, s.n);
    for (const int transposed : {0, 1, 2, 3}) {
      for (const float keep : {0.0F, 1.0F, -0.5F}) {
        const bool a_transposed = (transposed & 1) != 0;
        const bool b_transposed = (transposed & 2) != 0;
        const FloatRowMajor stored_a = padded(a_transposed ? RowMajor(a.transpose()) : a, 3);
        const FloatRowMajor stored_b = padded(b_transposed ? RowMajor(b.transpose()) : b, 1);
        FloatRowMajor c = padded(before, 5);
        cpu::multiply({.a_transposed = a_transposed,
                       .b_transposed = b_transposed,
                       .m = s.m,
                       .n = s.n,
                       .k = s.k,
                       .factor = 0.75F,
                       .a = stored_a.data(),
                       .a_leading = stored_a.cols(),
                       .b = stored_b.data(),
                       .b_leading = stored_b.cols(),
                       .keep = keep,
                       .c = c.data(),
                       .c_leading = c.cols()},
                      scratch);
        const RowMajor expected = 0.75 * a * b + static_cast<double>(keep) * before;
        CAPTURE(s.m);
        CAPTURE(s.n);
        CAPTURE(s.k);
        expect_close(fmt::format("transposed {}, keep {}", transposed, keep),
                     values_of(c.leftCols(s.n).cast<double>()), values_of(expected), DataType::fp32);
        CHECK((c.rightCols(5).array() == 1e30F).all());
      }
    }
  }
}

TEST_CASE(
    "linear layers beside Eigen's products: forward, gradients of inputs and of weights, in every type") {
  const auto device = make_cpu_device({.threads = 2});
  for (const MatmulShape s : kShapes) {
    for (const DataType type : real_types()) {
      CAPTURE(name_of_type(type));
      KernelHarness h(*device);
      const Values x = random_values(s.m * s.k, 1, type);
      const Values weight = random_values(s.n * s.k, 2, type);
      const Values bias = random_values(s.n, 3, type);
      const Values dy = random_values(s.m * s.n, 4, type);
      const RowMajor x_ = matrix(x, s.m, s.k), weight_ = matrix(weight, s.n, s.k), dy_ = matrix(dy, s.m, s.n);

      const Tensor y = h.zeros(index(s.m * s.n), type);
      h.run(Op::matmul, {s.m, s.n, s.k},
            {h.upload(x, type), h.upload(weight, type), h.upload(bias, type), y});
      const RowMajor forward = (x_ * weight_.transpose()).rowwise() + matrix(bias, 1, s.n).row(0);
      expect_close("y", h.download(y), values_of(forward), type);

      const Tensor dx = h.zeros(index(s.m * s.k), type);
      h.run(Op::matmul_input_gradient, {s.m, s.n, s.k}, {h.upload(dy, type), h.upload(weight, type), dx},
            kOverwrite);
      expect_close("dx", h.download(dx), values_of(dy_ * weight_), type);

      const Tensor dw = h.zeros(index(s.n * s.k), DataType::fp32);
      const Tensor db = h.zeros(index(s.n), DataType::fp32);
      h.run(Op::matmul_weight_gradient, {s.m, s.n, s.k}, {h.upload(dy, type), h.upload(x, type), dw, db});
      expect_close("dW", h.download(dw), values_of(dy_.transpose() * x_), DataType::fp32);
      expect_close("db", h.download(db), values_of(dy_.colwise().sum()), DataType::fp32);
    }
  }
}
