#include "executor/device/cuda/checks.hpp"

#include <fmt/format.h>

#include "executor/device/operand_checks.hpp"

namespace zeroplan::executor::cuda {

void refuse(const Kernel& kernel, const std::string& reason) { refuse_kernel("cuda", kernel, reason); }

void require_workspace(const Kernel& kernel, const Launcher& launcher, Bytes bytes) {
  if (bytes <= launcher.workspace_bytes) return;
  refuse(kernel,
         fmt::format("it needs a workspace of {} bytes, and there are {}", bytes, launcher.workspace_bytes));
}

const StepSettings& settings_of(const Kernel& kernel) {
  static const StepSettings defaults;
  return kernel.settings != nullptr ? *kernel.settings : defaults;
}

}  // namespace zeroplan::executor::cuda
