#include "executor/machine/host.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "executor/machine/machine.hpp"
#include "executor/machine/network.hpp"
#include "executor/machine/system.hpp"
#include "executor/machine/system_files.hpp"
#include "tests/support/fake_nvml.hpp"
#include "tests/support/machine_tree.hpp"

using namespace zeroplan;
using test::FakeNvml;
using test::MachineTree;

TEST_CASE("host: processors, NUMA nodes and memory") {
  const MachineTree tree;
  tree.add_host(8, 2'000'000);
  const FoundHost host = executor::read_host(tree.root());
  CHECK(host.processor == "Made-up CPU 9000");
  CHECK(host.sockets == 2);
  CHECK(host.cores == 16);
  CHECK(host.logical_cpus == 32);
  CHECK(host.numa_nodes == 2);
  CHECK(host.memory_bytes == 2'000'000 * kKiB);
}

TEST_CASE("host: an empty tree says nothing") {
  const MachineTree tree;
  const FoundHost host = executor::read_host(tree.root());
  CHECK(host.processor.empty());
  CHECK(!host.sockets);
  CHECK(!host.numa_nodes);
  CHECK(!host.memory_bytes);
  CHECK(executor::read_nics({}, tree.root()).empty());
}

TEST_CASE("network: rates, kinds, and the GPUs below the same PCIe root") {
  const MachineTree tree;
  for (const auto& [root, address] :
       std::vector<std::pair<std::string, std::string>>{{"pci0000:15", "0000:1a:00.0"},
                                                        {"pci0000:15", "0000:1b:00.0"},
                                                        {"pci0000:15", "0000:18:00.0"},
                                                        {"pci0000:15", "0000:18:00.1"},
                                                        {"pci0000:80", "0000:81:00.0"},
                                                        {"pci0000:80", "0000:82:00.0"}}) {
    tree.add_pci(root, address);
  }
  tree.add_rdma("mlx5_0", "0000:18:00.0", "InfiniBand", "400 Gb/sec (4X NDR)", "ib0");
  tree.add_rdma("mlx5_1", "0000:18:00.1", "Ethernet", "2.5 Gb/sec (1X SDR)", "");
  tree.add_interface("ens1", "0000:81:00.0", "up", "25000");
  tree.add_interface("ens2", "0000:82:00.0", "down", "-1");
  tree.add_interface("docker0", "", "up", "10000");
  FoundGpu first;
  first.index = 0;
  first.pci_address = "0000:1a:00.0";
  FoundGpu second;
  second.index = 1;
  second.pci_address = "0000:1b:00.0";
  FoundGpu elsewhere;
  elsewhere.index = 2;
  elsewhere.pci_address = "0000:c1:00.0";  // a container need not show it
  const std::vector<FoundNic> nics = executor::read_nics({first, second, elsewhere}, tree.root());
  REQUIRE(nics.size() == 4);  // ib0 belongs to mlx5_0, and docker0 is no device
  CHECK(nics[0].name == "mlx5_0");
  CHECK(nics[0].kind == "InfiniBand");
  CHECK(nics[0].interfaces == std::vector<std::string>{"ib0"});
  CHECK(nics[0].gbits_per_s == 400.0);
  CHECK(nics[0].active == true);
  CHECK(nics[0].pci_address == "0000:18:00.0");
  CHECK(nics[0].pci_root == "pci0000:15");
  CHECK(nics[0].gpus == std::vector<std::int64_t>{0, 1});
  CHECK(nics[1].kind == "RoCE");
  CHECK(nics[1].gbits_per_s == 2.5);
  CHECK(nics[2].name == "ens1");
  CHECK(nics[2].kind == "Ethernet");
  CHECK(nics[2].gbits_per_s == 25.0);
  CHECK(nics[2].gpus.empty());
  CHECK(nics[3].active == false);
  CHECK(!nics[3].gbits_per_s);
}

TEST_CASE("system: control groups of both versions, huge pages, clock") {
  const MachineTree second;
  second.write("sys/fs/cgroup/memory.max", "1073741824");
  second.write("sys/fs/cgroup/cpu.max", "150000 100000");
  second.write("proc/sys/vm/nr_hugepages", "12");
  second.write("proc/meminfo", "MemTotal: 8000000 kB\nHugepagesize:       2048 kB");
  second.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
  second.write("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet");
  FoundSystem system;
  system.machine.host.memory_bytes = 8'000'000 * kKiB;
  executor::read_system_files(second.root(), system);
  CHECK(system.cgroup_memory_bytes == kGiB);
  CHECK(system.cgroup_cpus == 1.5);
  CHECK(system.huge_pages == 12);
  CHECK(system.huge_page_bytes == 2 * kMiB);
  CHECK(system.transparent_huge_pages == "madvise");
  CHECK(system.clock_source == "hpet");

  const MachineTree first;
  first.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  first.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  first.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  FoundSystem unlimited;
  unlimited.machine.host.memory_bytes = 8'000'000 * kKiB;
  executor::read_system_files(first.root(), unlimited);
  CHECK(!unlimited.cgroup_memory_bytes);
  CHECK(!unlimited.cgroup_cpus);

  first.write("sys/fs/cgroup/cpu.max", "max 100000");
  executor::read_system_files(first.root(), unlimited);
  CHECK(!unlimited.cgroup_cpus);
}

TEST_CASE("system: libraries by name, the first that opens") {
  const auto no_version = [](const executor::SharedLibrary&) { return std::optional<std::int64_t>(); };
  CHECK(executor::find_library({"libnowhere.so.9", "libm.so.6"}, no_version).file == "libm.so.6");
  const FoundLibrary none = executor::find_library({"libnowhere.so.9"}, no_version);
  CHECK(none.file.empty());
  CHECK(none.looked_for == std::vector<std::string>{"libnowhere.so.9"});
}

TEST_CASE("system: this machine") {
  const MachineTree tree;
  const FakeNvml fake("one-h200");
  const auto variable = [](const std::string& name) {
    return name == "MASTER_PORT" ? std::optional<std::string>("70000") : std::nullopt;
  };
  const FoundSystem system = executor::find_system(variable, {test::kNewNvml, tree.root()});
  CHECK(system.machine.gpus.size() == 1);
  CHECK(system.allowed_cpus >= 1);
  CHECK(system.clock_steps_back_nanoseconds == 0);
  CHECK(!system.mpirun);  // there is no PATH
  CHECK(system.rendezvous_port == 70000);
  CHECK(system.rendezvous_problem.find("1 to 65535") != std::string::npos);
  CHECK(system.shared_memory_bytes.value_or(1) > 0);
}
