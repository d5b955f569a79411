#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "executor/communicator/threads/thread_communicator.hpp"
#include "executor/error.hpp"

// Vectors of whole numbers whose sums are exact in every type, made without the code under test.
namespace zeroplan::executor::test {

using program::DataType;

inline constexpr DataType kTypes[] = {DataType::fp32, DataType::fp16, DataType::bf16};

// What one rank found wrong ends the run and fails the test: doctest's own checks are for one thread.
inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// A whole number in -8 ... 8: its sums over up to 9 ranks are exact in every type.
inline std::int64_t number(std::int64_t rank, std::int64_t i) {
  return (rank * 7919 + i * 104729 + rank * i) % 17 - 8;
}

// Whole numbers up to 255 as bit patterns, without the code under test: sign, exponent, fraction.
inline std::uint32_t pattern_of(std::int64_t value, DataType type) {
  if (value == 0) return 0;
  const auto magnitude = static_cast<std::uint32_t>(value < 0 ? -value : value);
  const auto exponent = static_cast<std::uint32_t>(std::bit_width(magnitude) - 1);
  const std::uint32_t fraction_bits = type == DataType::fp32 ? 23 : type == DataType::fp16 ? 10 : 7;
  const std::uint32_t bias = type == DataType::fp16 ? 15 : 127;
  const std::uint32_t sign = value < 0 ? (type == DataType::fp32 ? 1U << 31 : 1U << 15) : 0;
  const std::uint32_t fraction =
      fraction_bits >= exponent ? (magnitude - (1U << exponent)) << (fraction_bits - exponent) : 0;
  return sign | ((exponent + bias) << fraction_bits) | fraction;
}

struct Vector {
  Vector(DataType data_type, Elements elements)
      : type(data_type),
        bytes(static_cast<std::size_t>(elements * program::bytes_of(data_type))),
        count(elements) {}

  void set(Elements i, std::uint32_t pattern) {
    const auto size = static_cast<std::size_t>(program::bytes_of(type));
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * size, &pattern, size);
  }
  std::uint32_t at(Elements i) const {
    std::uint32_t pattern = 0;
    const auto size = static_cast<std::size_t>(program::bytes_of(type));
    std::memcpy(&pattern, bytes.data() + static_cast<std::size_t>(i) * size, size);
    return pattern;
  }
  Tensor tensor() { return {.data = bytes.data(), .type = type, .elements = count}; }
  Tensor part(Elements first, Elements elements) {
    return {.data = bytes.data() + first * program::bytes_of(type), .type = type, .elements = elements};
  }

  DataType type;
  std::vector<std::byte> bytes;
  Elements count;
};

inline Vector numbers(std::int64_t rank, DataType type, Elements elements) {
  Vector vector(type, elements);
  for (Elements i = 0; i < elements; ++i) vector.set(i, pattern_of(number(rank, i), type));
  return vector;
}

inline std::int64_t sum_of(std::int64_t ranks, Elements i) {
  std::int64_t sum = 0;
  for (std::int64_t r = 0; r < ranks; ++r) sum += number(r, i);
  return sum;
}

inline std::int64_t maximum_of(std::int64_t ranks, Elements i) {
  std::int64_t maximum = number(0, i);
  for (std::int64_t r = 1; r < ranks; ++r) maximum = std::max(maximum, number(r, i));
  return maximum;
}

inline std::vector<Elements> odd_sizes(std::int64_t n) {
  return {0, 1, n - 1, n, n + 1, 2, 31, 97, 1009, 4999};
}

// One message per rank: what its exception said.
template <class Error = CommunicationError, class Function>
std::vector<std::string> messages(std::int64_t ranks, const ThreadOptions& options, Function function) {
  const auto communicators = make_thread_communicators(ranks, options);
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> running;
  for (std::size_t r = 0; r < said.size(); ++r) {
    running.emplace_back([&, r] {
      try {
        function(*communicators[r]);
      } catch (const Error& error) {
        said[r] = error.what();
      }
    });
  }
  running.clear();
  return said;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline Tensor of_floats(std::vector<float>& values) {
  return {.data = reinterpret_cast<std::byte*>(values.data()),
          .type = DataType::fp32,
          .elements = static_cast<Elements>(values.size())};
}

}  // namespace zeroplan::executor::test
