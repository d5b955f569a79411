#include "executor/modules.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "executor/cuda_choice.hpp"
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

constexpr std::string_view kAdvice = "; zeroplan doctor says what is missing and what mends it";

// The function `symbol` of a module; `advice` ends what is said where it cannot be had. A module stays open: what it made may live as long as the process.
void* find(const std::string& name, const char* symbol, std::string_view advice = kAdvice) {
  std::string tried;
  for (const std::filesystem::path& place : module_places(name)) {
    std::error_code error;
    if (!std::filesystem::exists(place, error)) {
      tried += fmt::format("{}{}", tried.empty() ? "" : ", ", place.string());
      continue;
    }
    void* module = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr)
      throw NotPossible(fmt::format("{} cannot be opened: {}{}", place.string(), dlerror(), advice));
    const auto interface = reinterpret_cast<InterfaceFunction*>(dlsym(module, kInterfaceSymbol));
    if (interface == nullptr || std::string_view(interface()) != ZEROPLAN_MODULE_INTERFACE) {
      throw NotPossible(
          fmt::format("{} is no part of this zeroplan, but of another build or program", place.string()));
    }
    void* function = dlsym(module, symbol);
    if (function == nullptr) throw NotPossible(fmt::format("{} has no {}", place.string(), symbol));
    return function;
  }
  throw NotPossible(fmt::format("zeroplan_{}.so was not found (looked for {}){}", name, tried, advice));
}

// The module `name` for GPU `index`, with the libraries open that it is not linked with. Without a driver the usual one says
// what is missing.
std::string module_for_gpu(const std::string& name, int index, std::vector<std::string> libraries) {
  const std::optional<CudaDriver> driver = ask_cuda_driver();
  if (!driver || index < 0 || static_cast<std::size_t>(index) >= driver->sm.size()) return name;
  const CudaBuild build = choose_cuda_build(*driver, index);
  if (build.suffix.empty()) return name;
  libraries.insert(libraries.begin(), build.libraries.begin(), build.libraries.end());
  for (const std::string& library : libraries) {
    if (dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) continue;
    throw NotPossible(fmt::format("GPU {} needs {} of CUDA 12, which cannot be opened: {}{}", index, library,
                                  dlerror(), kAdvice));
  }
  return name + build.suffix;
}

// A host's cards are alike.
std::string nccl_module() { return module_for_gpu("nccl", 0, {"libnccl.so.2"}); }

}  // namespace

std::unique_ptr<Device> make_device(const std::string& name, const DeviceOptions& options) {
  const std::string module = name == "cuda" ? module_for_gpu(name, options.index, {}) : name;
  const auto make = reinterpret_cast<MakeDeviceFunction*>(find(module, kMakeDeviceSymbol));
  return std::unique_ptr<Device>(make(options));
}

int count_devices(const std::string& name) {
  const auto count =
      reinterpret_cast<CountDevicesFunction*>(find(module_for_gpu(name, 0, {}), kCountDevicesSymbol));
  return count();
}

DataPlanes make_nccl_module_planes(ControlPlane& world, Device& device,
                                   std::span<const program::Group> groups,
                                   std::chrono::milliseconds timeout) {
  const auto make = reinterpret_cast<MakeNcclPlanesFunction*>(find(nccl_module(), kMakeNcclPlanesSymbol));
  DataPlanes planes;
  make(world, device, groups, timeout, planes);
  return planes;
}

BlockSource nccl_module_blocks() {
  const auto blocks = reinterpret_cast<NcclBlocksFunction*>(find(nccl_module(), kNcclBlocksSymbol));
  BlockSource source;
  blocks(source);
  return source;
}

DataPlanes make_shared_card_module_planes(ControlPlane& world, Device& device,
                                          std::span<const program::Group> groups) {
  const auto make = reinterpret_cast<MakeSharedCardPlanesFunction*>(
      find(module_for_gpu("cuda", 0, {}), kMakeSharedCardPlanesSymbol));
  DataPlanes planes;
  make(world, device, groups, planes);
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
    find(name, kInterfaceSymbol, "");
  } catch (const NotPossible& error) {
    return error.what();
  }
  return {};
}

}  // namespace zeroplan::executor
