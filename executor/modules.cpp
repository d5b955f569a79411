#include "executor/modules.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <vector>

#include "executor/error.hpp"
#include "executor/module_interface.hpp"

namespace zeroplan::executor {

namespace {

std::vector<std::filesystem::path> module_places(const std::string& name) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::string file = fmt::format("zeroplan_{}.so", name);
  return {folder / file, folder.parent_path() / file, folder.parent_path() / "lib" / "zeroplan" / file};
}

// The function `symbol` of a module. A module stays open: what it made may live as long as the process.
void* find(const std::string& name, const char* symbol) {
  std::string tried;
  for (const std::filesystem::path& place : module_places(name)) {
    std::error_code error;
    if (!std::filesystem::exists(place, error)) {
      tried += fmt::format("{}{}", tried.empty() ? "" : ", ", place.string());
      continue;
    }
    void* module = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr)
      throw NotPossible(fmt::format("{} cannot be opened: {}", place.string(), dlerror()));
    const auto interface = reinterpret_cast<InterfaceFunction*>(dlsym(module, kInterfaceSymbol));
    if (interface == nullptr || std::string_view(interface()) != ZEROPLAN_MODULE_INTERFACE) {
      throw NotPossible(
          fmt::format("{} is no part of this zeroplan, but of another build or program", place.string()));
    }
    void* function = dlsym(module, symbol);
    if (function == nullptr) throw NotPossible(fmt::format("{} has no {}", place.string(), symbol));
    return function;
  }
  throw NotPossible(fmt::format("zeroplan_{}.so was not found (looked for {})", name, tried));
}

}  // namespace

std::unique_ptr<Device> make_device(const std::string& name, const DeviceOptions& options) {
  const auto make = reinterpret_cast<MakeDeviceFunction*>(find(name, kMakeDeviceSymbol));
  return std::unique_ptr<Device>(make(options));
}

DataPlanes make_nccl_module_planes(ControlPlane& world, Device& device,
                                   std::span<const program::Group> groups,
                                   std::chrono::milliseconds timeout) {
  const auto make = reinterpret_cast<MakeNcclPlanesFunction*>(find("nccl", kMakeNcclPlanesSymbol));
  DataPlanes planes;
  make(world, device, groups, timeout, planes);
  return planes;
}

std::string pin_to_share(const HostShare& share) {
  const auto pin = reinterpret_cast<PinFunction*>(find("cpu", kPinSymbol));
  std::string what;
  pin(share, what);
  return what;
}

void run_mpi_module(std::chrono::milliseconds timeout, std::int64_t ranks,
                    const std::function<void(Communicator&)>& rank_main) {
  const auto run = reinterpret_cast<RunMpiFunction*>(find("mpi", kRunMpiSymbol));
  run(timeout, ranks, rank_main);
}

bool has_mpi_module() {
  std::error_code error;
  for (const std::filesystem::path& place : module_places("mpi")) {
    if (std::filesystem::exists(place, error)) return true;
  }
  return false;
}

std::string module_problem(const std::string& name) {
  try {
    find(name, kInterfaceSymbol);
  } catch (const NotPossible& error) {
    return error.what();
  }
  return {};
}

}  // namespace zeroplan::executor
