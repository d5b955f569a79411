#include "executor/device/cpu/pinning.hpp"

#ifdef ZEROPLAN_HWLOC

#include <fmt/format.h>
#include <hwloc.h>

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace zeroplan::executor::cpu {

namespace {

struct FreeSet {
  void operator()(hwloc_bitmap_t set) const { hwloc_bitmap_free(set); }
};
using Set = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, FreeSet>;

struct FreeTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, FreeTopology>;

Topology this_host() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return nullptr;
  Topology owned(topology);
  return hwloc_topology_load(topology) == 0 ? std::move(owned) : nullptr;
}

bool is_bound(hwloc_topology_t topology) {
  const Set bound(hwloc_bitmap_alloc());
  if (hwloc_get_cpubind(topology, bound.get(), HWLOC_CPUBIND_THREAD) != 0) return true;  // it may be
  return hwloc_bitmap_isincluded(hwloc_topology_get_allowed_cpuset(topology), bound.get()) == 0;
}

}  // namespace

std::string pin_to_share(const HostShare& share) {
  const Topology topology = this_host();
  if (topology == nullptr || is_bound(topology.get())) return {};
  const int cores = hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_CORE);
  const int processors = hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_PU);
  if (share.count > cores || share.count * share.threads > processors) return {};

  std::vector<hwloc_cpuset_t> shares(static_cast<std::size_t>(share.count), nullptr);
  hwloc_obj_t root = hwloc_get_root_obj(topology.get());
  if (hwloc_distrib(topology.get(), &root, 1, shares.data(), static_cast<unsigned>(share.count),
                    hwloc_get_type_depth(topology.get(), HWLOC_OBJ_CORE), 0) != 0) {
    return {};
  }
  const std::vector<Set> owned(shares.begin(), shares.end());
  const Set& own = owned[static_cast<std::size_t>(share.index)];
  // Where ranks do not divide the cores, a share may be too small for its threads.
  if (hwloc_bitmap_weight(own.get()) < share.threads) return {};
  if (hwloc_set_cpubind(topology.get(), own.get(), HWLOC_CPUBIND_THREAD) != 0) return {};
  const int own_cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology.get(), own.get(), HWLOC_OBJ_CORE);
  return fmt::format("pinned to {} {}", own_cores, own_cores == 1 ? "core" : "cores");
}

}  // namespace zeroplan::executor::cpu

#else

namespace zeroplan::executor::cpu {

std::string pin_to_share(const HostShare&) { return {}; }

}  // namespace zeroplan::executor::cpu

#endif
