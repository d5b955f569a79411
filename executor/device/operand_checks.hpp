#pragma once

#include <string>
#include <string_view>

#include "executor/device/device.hpp"

// What every device refuses, in the same words; `device` is the kind that the message begins with.
namespace zeroplan::executor {

// Throws DeviceError, which names instruction and operand, where an operand is missing, smaller than the dims ask or of
// a type that the instruction table does not have there.
void check_operands_of(std::string_view device, const Kernel& kernel);

[[noreturn]] void refuse_kernel(std::string_view device, const Kernel& kernel, const std::string& reason);

}  // namespace zeroplan::executor
