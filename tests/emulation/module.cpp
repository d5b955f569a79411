#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/machine.hpp"
#include "tests/emulation/cublaslt/cublaslt.hpp"
#include "tests/emulation/nccl/nccl.hpp"

// The module of emulated GPUs is told by the environment what they are:
//
//   ZEROPLAN_EMULATED_GPUS            how many; 8
//   ZEROPLAN_EMULATED_MIB             the memory of each; 16384
//   ZEROPLAN_EMULATED_SM              its compute capability; 90
//   ZEROPLAN_EMULATED_POLICY          in_order, late, priority or random
//   ZEROPLAN_EMULATED_SEED            of the last two
//   ZEROPLAN_EMULATED_DRIVER          the error that every call gives
//   ZEROPLAN_EMULATED_FAIL_CALL       NAME:N:ERROR, the N-th call of a function of CUDA gives the error and does nothing
//   ZEROPLAN_EMULATED_FAIL_OPERATION  NAME:N:ERROR, the N-th kernel, copy or collective of that name, and its device from then on
//   ZEROPLAN_EMULATED_NCCL            its version; that of its header
//   ZEROPLAN_EMULATED_FAIL_NCCL       N:ERROR, the N-th collective never ends and its communicator has the error, 0: none
//   ZEROPLAN_EMULATED_TELL            1: when the process ends and nothing is left, it says so on standard error
//
// What is left when the process ends is written there, and the exit code is 70.
namespace {

using zeroplan::emulation::Injection;

std::string_view text(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

int number(std::string_view digits, int otherwise) {
  int value = otherwise;
  (void)std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

zeroplan::emulation::Policy policy() {
  using zeroplan::emulation::Policy;
  const std::string_view name = text("ZEROPLAN_EMULATED_POLICY");
  if (name == "late") return Policy::late;
  if (name == "priority") return Policy::priority;
  return name == "random" ? Policy::random : Policy::in_order;
}

std::vector<Injection> injections(const char* name) {
  const std::string_view all = text(name);
  const std::size_t first = all.find(':'), last = all.rfind(':');
  if (first == std::string_view::npos) return {};
  return {{std::string(all.substr(0, first)), number(all.substr(first + 1), 1),
           static_cast<cudaError_t>(number(all.substr(last + 1), 0))}};
}

void say(const std::string& line) {
  (void)std::fputs(fmt::format("emulated CUDA: {}\n", line).c_str(), stderr);
}

void at_end() {
  std::vector<std::string> left = zeroplan::emulation::leaks_of_process();
  if (const auto objects = zeroplan::emulation::nccl_objects(); objects > 0)
    left.push_back(fmt::format("{} objects of NCCL", objects));
  if (const auto objects = zeroplan::emulation::cublaslt_objects(); objects > 0)
    left.push_back(fmt::format("{} objects of cuBLASLt", objects));
  for (const std::string& one : left) say("left: " + one);
  if (!left.empty()) std::_Exit(70);
  if (text("ZEROPLAN_EMULATED_TELL") == "1") say("nothing is left");
}

[[gnu::constructor]] void start() {
  zeroplan::emulation::MachineOptions options;
  zeroplan::emulation::Gpu gpu;
  gpu.capacity = static_cast<std::size_t>(number(text("ZEROPLAN_EMULATED_MIB"), 16384)) << 20;
  gpu.sm = number(text("ZEROPLAN_EMULATED_SM"), gpu.sm);
  options.gpus.assign(static_cast<std::size_t>(number(text("ZEROPLAN_EMULATED_GPUS"), 8)), gpu);
  options.schedule = {policy(), static_cast<std::uint64_t>(number(text("ZEROPLAN_EMULATED_SEED"), 0))};
  options.driver = static_cast<cudaError_t>(number(text("ZEROPLAN_EMULATED_DRIVER"), 0));
  options.failing_calls = injections("ZEROPLAN_EMULATED_FAIL_CALL");
  options.failing_operations = injections("ZEROPLAN_EMULATED_FAIL_OPERATION");
  zeroplan::emulation::use_for_process(options);
  zeroplan::emulation::set_nccl_behaviour(
      {.version = number(text("ZEROPLAN_EMULATED_NCCL"), NCCL_VERSION_CODE)});
  if (const std::string_view failing = text("ZEROPLAN_EMULATED_FAIL_NCCL"); !failing.empty()) {
    zeroplan::emulation::fail_nccl_collective(
        number(failing, 1), static_cast<ncclResult_t>(number(failing.substr(failing.find(':') + 1), 0)));
  }
  (void)zeroplan::emulation::cublaslt_objects();
  // Registered when all that it asks was made, and so called before that ends.
  (void)std::atexit(at_end);
}

}  // namespace
