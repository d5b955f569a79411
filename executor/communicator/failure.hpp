#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace zeroplan::executor {

// An exception as another rank can be told of it.
struct Failure {
  enum class Kind : std::uint8_t { configuration, not_possible, communication, device, logic, other };

  Kind kind = Kind::communication;
  std::string text;
};

Failure failure_of(const std::exception_ptr& exception);

// ConfigurationError, NotPossible, CommunicationError, DeviceError, std::logic_error or std::runtime_error,
// by its kind.
[[noreturn]] void throw_failure(const Failure& failure);

// "rank 3", "ranks 1, 3": each once, in ascending order.
std::string ranks_text(std::vector<std::int64_t> ranks);

}  // namespace zeroplan::executor
