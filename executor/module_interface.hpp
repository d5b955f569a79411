#pragma once

#include "executor/modules.hpp"

// The functions that modules have. C names, but what they take is C++ of this build: a module whose interface
// has another digest (executor/CMakeLists.txt) is not called.
namespace zeroplan::executor {

using InterfaceFunction = const char*();
inline constexpr const char* kInterfaceSymbol = "zeroplan_module_interface";

using MakeDeviceFunction = Device*(const DeviceOptions& options);  // the caller owns it
inline constexpr const char* kMakeDeviceSymbol = "zeroplan_make_device";

using CountDevicesFunction = int();
inline constexpr const char* kCountDevicesSymbol = "zeroplan_count_devices";

using PinFunction = void(const HostShare& share, std::string& what);
inline constexpr const char* kPinSymbol = "zeroplan_pin_to_share";

using MakeNcclPlanesFunction = void(ControlPlane& world, Device& device,
                                    std::span<const program::Group> groups, std::chrono::milliseconds timeout,
                                    DataPlanes& planes);
inline constexpr const char* kMakeNcclPlanesSymbol = "zeroplan_make_nccl_planes";
using NcclBlocksFunction = void(BlockSource& source);
inline constexpr const char* kNcclBlocksSymbol = "zeroplan_nccl_blocks";

using MakeSharedCardPlanesFunction = void(ControlPlane& world, Device& device,
                                          std::span<const program::Group> groups, DataPlanes& planes);
inline constexpr const char* kMakeSharedCardPlanesSymbol = "zeroplan_make_shared_card_planes";

using RunMpiFunction = void(std::chrono::milliseconds timeout, std::int64_t ranks,
                            const std::function<void(Communicator&)>& rank_main);
inline constexpr const char* kRunMpiSymbol = "zeroplan_run_mpi";

}  // namespace zeroplan::executor
