#include "cli/run_device.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <string_view>

#include "planner/describe/text/quantity.hpp"
#include "planner/error.hpp"
#include "reports/numbers.hpp"

namespace zeroplan::cli {

namespace {

constexpr std::int64_t kMostDevices = 1024;  // of one machine

}  // namespace

OptionSpec run_device_option() {
  return {{"--device"},
          "device",
          "cpu|cuda[:N]",
          "run on this; cpu runs a plan for GPUs on processors, and the answer names what that leaves out"};
}

RunDevice read_run_device(const Request& request) {
  RunDevice device;
  const auto found = request.own.find("device");
  if (found == request.own.end()) return device;
  device.said = true;
  const std::string_view text = found->second;
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const bool has_index = colon != std::string_view::npos;
  if (name == "cuda") {
    device.kind = RunDevice::Kind::cuda;
  } else if (name != "cpu" || has_index) {
    throw ConfigurationError(Problem{
        "--device", 0, "", fmt::format("found {}, expected cpu, cuda or cuda:N", zeroplan::quoted(text))});
  }
  if (!has_index) return device;
  try {
    device.index = static_cast<int>(describe::parse_integer(text.substr(colon + 1), 0, kMostDevices - 1));
  } catch (const std::invalid_argument& error) {
    throw ConfigurationError(Problem{"--device", 0, "", error.what()});
  }
  return device;
}

std::optional<std::string> cannot_share(const RunDevice& device, std::int64_t ranks, Bytes bytes,
                                        const describe::Cluster& machine) {
  const describe::Capacity& capacity = machine.device->capacity;
  if (device.kind != RunDevice::Kind::cuda || device.index < 0 || capacity.from_host_memory) {
    return std::nullopt;
  }
  if (ranks * bytes <= capacity.usable_bytes()) return std::nullopt;
  return fmt::format("the {} on one {} need {} bytes for their buffers, and it has {}",
                     reports::counted(ranks, "rank"), machine.device->name, reports::thousands(ranks * bytes),
                     reports::thousands(capacity.usable_bytes()));
}

std::optional<std::string> cannot_stand_for(const RunDevice& device, const describe::Cluster& machine) {
  if (device.said || machine.device->capacity.from_host_memory) return std::nullopt;
  return fmt::format(
      "the plan is for {}, and this program runs on processors; --device cpu runs the plan's buffers, "
      "traffic "
      "and products on them, and leaves the time and the overheads of {} unmeasured",
      machine.device->name, machine.device->name);
}

}  // namespace zeroplan::cli
