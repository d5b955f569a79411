#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

#include "runtime/machine.hpp"

// The module of emulated GPUs is told by the environment what they are:
//
//   ZEROPLAN_EMULATED_GPUS      how many; 8
//   ZEROPLAN_EMULATED_GIB       the memory of each; 16
//   ZEROPLAN_EMULATED_SM        its compute capability; 90
//   ZEROPLAN_EMULATED_POLICY    in_order, late, priority or random
//   ZEROPLAN_EMULATED_SEED      of the last two
//   ZEROPLAN_EMULATED_DRIVER    the error that every call gives
namespace {

int number(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr) return otherwise;
  int value = otherwise;
  const std::string_view digits = text;
  (void)std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

zeroplan::emulation::Policy policy() {
  using zeroplan::emulation::Policy;
  const char* text = std::getenv("ZEROPLAN_EMULATED_POLICY");
  const std::string_view name = text == nullptr ? "in_order" : text;
  if (name == "late") return Policy::late;
  if (name == "priority") return Policy::priority;
  return name == "random" ? Policy::random : Policy::in_order;
}

[[gnu::constructor]] void start() {
  zeroplan::emulation::MachineOptions options;
  zeroplan::emulation::Gpu gpu;
  gpu.capacity = static_cast<std::size_t>(number("ZEROPLAN_EMULATED_GIB", 16)) << 30;
  gpu.sm = number("ZEROPLAN_EMULATED_SM", gpu.sm);
  options.gpus.assign(static_cast<std::size_t>(number("ZEROPLAN_EMULATED_GPUS", 8)), gpu);
  options.schedule = {policy(), static_cast<std::uint64_t>(number("ZEROPLAN_EMULATED_SEED", 0))};
  options.driver = static_cast<cudaError_t>(number("ZEROPLAN_EMULATED_DRIVER", 0));
  zeroplan::emulation::use_for_process(options);
}

}  // namespace
