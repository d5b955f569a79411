#pragma once

#include <string>

#include "executor/device/cuda/launch.hpp"

// What a host entry refuses before it starts a kernel. Without the text of fmt, which is not for nvcc.
namespace zeroplan::executor::cuda {

// Throws DeviceError, which names the instruction.
[[noreturn]] void refuse(const Kernel& kernel, const std::string& reason);

// Refuses a kernel that needs more than the launcher's workspace.
void require_workspace(const Kernel& kernel, const Launcher& launcher, Bytes bytes);

// What the kernel was given, or the defaults.
const StepSettings& settings_of(const Kernel& kernel);

}  // namespace zeroplan::executor::cuda
