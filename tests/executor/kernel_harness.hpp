#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "executor/device/device.hpp"
#include "executor/step_scalars.hpp"
#include "planner/instructions/table.hpp"

// What tests of kernels need of any Device: tensors from and to double precision, and comparison with a
// tolerance that fits a type. Rounding to 16 bits is done here with ldexp and nearbyint, not with the
// executor's code.
namespace zeroplan::executor::test {

using program::DataType;
using program::Op;
using Values = std::vector<double>;

struct FloatFormat {
  int mantissa_bits;  // stored ones
  int lowest_exponent;
  double largest;
};
inline FloatFormat format_of(DataType type) {
  if (type == DataType::fp16) return {10, -14, 65504.0};
  return {7, -126, std::ldexp(1.9921875, 127)};
}

// To nearest, ties to even.
inline double rounded(double value, DataType type) {
  if (type == DataType::fp32) return static_cast<double>(static_cast<float>(value));
  if (!std::isfinite(value) || value == 0) return value;
  const FloatFormat format = format_of(type);
  const int exponent = std::max(std::ilogb(value), format.lowest_exponent) - format.mantissa_bits;
  const double result = std::ldexp(std::nearbyint(std::ldexp(value, -exponent)), exponent);
  return std::fabs(result) > format.largest ? std::copysign(INFINITY, value) : result;
}

inline std::uint16_t pattern_of(double value, DataType type) {
  const FloatFormat format = format_of(type);
  const auto sign = static_cast<std::uint32_t>(std::signbit(value) ? 0x8000U : 0U);
  const auto infinity = (0x7fffU >> format.mantissa_bits) << format.mantissa_bits;
  const double magnitude = std::fabs(rounded(value, type));
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinity | 1U);
  if (std::isinf(magnitude)) return static_cast<std::uint16_t>(sign | infinity);
  if (magnitude < std::ldexp(1.0, format.lowest_exponent)) {
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(std::ldexp(
                                                 magnitude, format.mantissa_bits - format.lowest_exponent)));
  }
  const int exponent = std::ilogb(magnitude);
  const auto whole = static_cast<std::uint32_t>(std::ldexp(magnitude, format.mantissa_bits - exponent));
  const auto biased = static_cast<std::uint32_t>(exponent - format.lowest_exponent);
  return static_cast<std::uint16_t>(sign | (whole + (biased << format.mantissa_bits)));
}

inline double value_of(std::uint16_t pattern, DataType type) {
  const FloatFormat format = format_of(type);
  const int mantissa = pattern & ((1 << format.mantissa_bits) - 1);
  const int field = (pattern & 0x7fff) >> format.mantissa_bits;
  const double sign = (pattern & 0x8000) != 0 ? -1.0 : 1.0;
  if (field == 0x7fff >> format.mantissa_bits) return mantissa != 0 ? NAN : sign * INFINITY;
  if (field == 0) return sign * std::ldexp(mantissa, format.lowest_exponent - format.mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << format.mantissa_bits),
                           field - 1 + format.lowest_exponent - format.mantissa_bits);
}

inline const char* name_of_type(DataType type) {
  if (type == DataType::fp32) return "fp32";
  return type == DataType::fp16 ? "fp16" : "bf16";
}

class KernelHarness {
 public:
  explicit KernelHarness(Device& device) : device_(device) {
    scalars_.elements = program::kScalars;
    scalars_.data = device_.allocate(scalars_.bytes(), program::Space::device);
  }
  ~KernelHarness() {
    device_.deallocate(scalars_.data, scalars_.bytes(), program::Space::device);
    for (const auto& [block, bytes] : blocks_) device_.deallocate(block, bytes, program::Space::device);
  }
  KernelHarness(const KernelHarness&) = delete;
  KernelHarness& operator=(const KernelHarness&) = delete;

  StepSettings settings;

  Tensor zeros(std::size_t elements, DataType type) {
    Tensor tensor;
    tensor.type = type;
    tensor.elements = static_cast<Elements>(elements);
    const Bytes bytes = tensor.bytes() + kFenceBytes;
    tensor.data = device_.allocate(bytes, program::Space::device);
    blocks_.emplace_back(tensor.data, bytes);
    set_raw(tensor, 0);
    set_raw(fence_of(blocks_.back()), kUntouched);
    return tensor;
  }
  Tensor upload(const Values& values, DataType type) {
    const Tensor tensor = zeros(values.size(), type);
    store(tensor, values);
    return tensor;
  }
  Tensor upload_integers(const std::vector<std::int32_t>& values) {
    const Tensor tensor = zeros(values.size(), DataType::int32);
    through_host(tensor, Op::copy_to_device, [&](const Tensor& host) {
      if (!values.empty()) std::memcpy(host.data, values.data(), values.size() * 4);
    });
    return tensor;
  }
  void store(const Tensor& tensor, const Values& values) {
    through_host(tensor, Op::copy_to_device, [&](const Tensor& host) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (tensor.type == DataType::fp32) {
          host.as<float>()[i] = static_cast<float>(values[i]);
        } else {
          host.as<std::uint16_t>()[i] = pattern_of(values[i], tensor.type);
        }
      }
    });
  }
  Values download(const Tensor& tensor) {
    Values values(static_cast<std::size_t>(tensor.elements));
    through_host(tensor, Op::copy_to_host, [&](const Tensor& host) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = tensor.type == DataType::fp32 ? static_cast<double>(host.as<float>()[i])
                                                  : value_of(host.as<std::uint16_t>()[i], tensor.type);
      }
    });
    return values;
  }

  void run(Op op, std::array<std::int64_t, 4> dims, const std::vector<Tensor>& operands,
           std::uint8_t flags = 0, std::int64_t extra = 0) {
    Kernel kernel;
    kernel.op = op;
    kernel.dims = dims;
    kernel.flags = flags;
    kernel.extra = static_cast<std::uint32_t>(extra);
    std::copy(operands.begin(), operands.end(), kernel.operands.begin());
    run(kernel);
  }
  // Holds the kernel to its row of the instruction table: what it reads stays as it was, what it writes is written
  // whole, and nothing behind any tensor of the harness is touched.
  void run(const Kernel& kernel) {
    const program::InstructionRow& row = program::row_of(kernel.op);
    const program::Shape shape{kernel.dims, kernel.extra, kernel.iteration};
    std::array<std::vector<std::uint8_t>, program::kMaxOperands> before;
    for (std::size_t i = 0; i < kernel.operands.size(); ++i) {
      if (is_only(kernel, i, program::Role::in)) before[i] = raw(kernel.operands[i]);
      if (is_written_whole(kernel, i, shape)) set_raw(kernel.operands[i], kUntouched);
    }
    execute(kernel);
    for (std::size_t i = 0; i < kernel.operands.size(); ++i) {
      CAPTURE(row.name);
      CAPTURE(row.operands[i].name);
      if (is_only(kernel, i, program::Role::in)) CHECK(raw(kernel.operands[i]) == before[i]);
      if (is_written_whole(kernel, i, shape)) CHECK(untouched_elements(kernel.operands[i]) == 0);
    }
    for (const auto& block : blocks_) {
      const std::vector<std::uint8_t> fence = raw(fence_of(block));
      CHECK(std::count(fence.begin(), fence.end(), kUntouched) == kFenceBytes);
    }
  }

 private:
  using Block = std::pair<std::byte*, Bytes>;
  static constexpr std::uint8_t kUntouched = 0xff;  // in every byte: no number in any type of real numbers
  static constexpr Bytes kFenceBytes = 64;

  void execute(Kernel kernel) {
    const StepScalars values = step_scalars_of(settings);
    std::array<float, program::kScalars> all{};
    std::copy(values.begin(), values.end(), all.begin() + kFirstStepScalar);
    device_.upload(scalars_.data, std::as_bytes(std::span(all)), program::Stream::compute);
    kernel.settings = &settings;
    kernel.scalars = scalars_;
    device_.execute(kernel, program::Stream::compute, {});
    device_.synchronize();
  }

  static Tensor fence_of(const Block& block) {
    Tensor fence;
    fence.type = DataType::uint8;
    fence.elements = kFenceBytes;
    fence.data = block.first + block.second - kFenceBytes;
    return fence;
  }

  // Whether the operand has this role and shares no memory with another one.
  static bool is_only(const Kernel& kernel, std::size_t operand, program::Role role) {
    const Tensor& tensor = kernel.operands[operand];
    if (!tensor || program::row_of(kernel.op).operands[operand].role != role) return false;
    for (std::size_t i = 0; i < kernel.operands.size(); ++i) {
      const Tensor& other = kernel.operands[i];
      const bool overlaps = i != operand && other && other.data < tensor.data + tensor.bytes() &&
                            tensor.data < other.data + other.bytes();
      if (overlaps) return false;
    }
    return true;
  }
  // Chunks, and rows that are parts of wider ones, leave the rest of their tensor alone.
  static bool is_written_whole(const Kernel& kernel, std::size_t operand, const program::Shape& shape) {
    return is_only(kernel, operand, program::Role::out) &&
           program::row_of(kernel.op).operands[operand].extent(shape) == kernel.operands[operand].elements;
  }

  std::vector<std::uint8_t> raw(const Tensor& tensor) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(tensor.bytes()));
    through_host(tensor, Op::copy_to_host, [&](const Tensor& host) {
      if (!bytes.empty()) std::memcpy(bytes.data(), host.data, bytes.size());
    });
    return bytes;
  }
  void set_raw(const Tensor& tensor, std::uint8_t byte) {
    through_host(tensor, Op::copy_to_device, [&](const Tensor& host) {
      if (host.elements > 0) std::memset(host.data, byte, static_cast<std::size_t>(host.bytes()));
    });
  }
  std::int64_t untouched_elements(const Tensor& tensor) {
    const std::vector<std::uint8_t> bytes = raw(tensor);
    const auto size = static_cast<std::size_t>(program::bytes_of(tensor.type));
    std::int64_t untouched = 0;
    for (std::size_t i = 0; i < bytes.size(); i += size) {
      const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(i);
      untouched += std::all_of(begin, begin + static_cast<std::ptrdiff_t>(size),
                               [](std::uint8_t byte) { return byte == kUntouched; })
                       ? 1
                       : 0;
    }
    return untouched;
  }

  template <class Visit>
  void through_host(const Tensor& tensor, Op direction, const Visit& visit) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes()));
    Tensor host = tensor;
    host.data = bytes.data();
    if (direction == Op::copy_to_host) device_.download(bytes, tensor.data);
    visit(host);
    if (direction == Op::copy_to_device) device_.upload(tensor.data, bytes, program::Stream::compute);
  }

  Device& device_;
  Tensor scalars_;  // with the settings of a step
  std::vector<Block> blocks_;
};

// The same numbers for the same seed everywhere, uniform in [-1, 1), rounded to `type`.
inline Values random_values(std::size_t count, unsigned seed, DataType type = DataType::fp32,
                            double scale = 1) {
  std::mt19937 generator(seed);
  Values values(count);
  for (double& value : values) {
    value = rounded(scale * (static_cast<double>(generator()) / 2147483648.0 - 1.0), type);
  }
  return values;
}
inline Values random_values(std::int64_t count, unsigned seed, DataType type = DataType::fp32,
                            double scale = 1) {
  return random_values(static_cast<std::size_t>(count), seed, type, scale);
}

// Relative to the value and to the tensor's root mean square: what sums in fp32 and one rounding to `type`
// may lose.
inline double tolerance(DataType type) {
  if (type == DataType::fp32) return 1e-5;
  return type == DataType::fp16 ? 1.0 / 512 : 1.0 / 64;
}

// `floor`: what a type cannot resolve at all.
inline void expect_close(const std::string& what, const Values& got, const Values& want, double relative,
                         double floor = 1e-30) {
  REQUIRE(got.size() == want.size());
  double squares = 0;
  for (const double value : want) squares += std::isfinite(value) ? value * value : 0;
  const double size = std::sqrt(squares / static_cast<double>(std::max<std::size_t>(1, want.size())));
  std::size_t wrong = 0;
  std::string first;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i] || std::fabs(got[i] - want[i]) <= relative * (std::fabs(want[i]) + size) + floor) {
      continue;
    }
    if (wrong == 0) first = fmt::format("[{}] is {}, expected {}", i, got[i], want[i]);
    ++wrong;
  }
  CAPTURE(what);
  CAPTURE(first);
  CHECK(wrong == 0);
}
inline void expect_close(const std::string& what, const Values& got, const Values& want, DataType type) {
  expect_close(what, got, want, tolerance(type), type == DataType::fp16 ? std::ldexp(1.0, -24) : 1e-30);
}

// d loss / d x by central differences; `loss` in double precision, so the error is about 1e-9.
inline Values numeric_gradient(const Values& x, const std::function<double(const Values&)>& loss) {
  Values gradient(x.size());
  Values moved = x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double step = 1e-5;
    moved[i] = x[i] + step;
    const double above = loss(moved);
    moved[i] = x[i] - step;
    gradient[i] = (above - loss(moved)) / (2 * step);
    moved[i] = x[i];
  }
  return gradient;
}

inline double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

inline Values sum(const Values& a, const Values& b) {
  Values result = a;
  for (std::size_t i = 0; i < a.size(); ++i) result[i] += b[i];
  return result;
}

}  // namespace zeroplan::executor::test
