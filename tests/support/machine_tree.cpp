#include "tests/support/machine_tree.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

namespace zeroplan::test {

namespace fs = std::filesystem;

void MachineTree::write(const std::string& path, const std::string& text) const {
  const fs::path file = fs::path(root()) / path;
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text << '\n';
}

std::string MachineTree::device_folder(const std::string& address) const {
  return fs::canonical(fs::path(root()) / "sys/bus/pci/devices" / address).string();
}

void MachineTree::add_pci(const std::string& root_name, const std::string& address) const {
  const fs::path below =
      fs::path(root()) / "sys/devices" / root_name / (root_name.substr(3) + ":01.0") / address;
  fs::create_directories(below);
  const fs::path link = fs::path(root()) / "sys/bus/pci/devices" / address;
  fs::create_directories(link.parent_path());
  fs::create_directory_symlink(below, link);
}

void MachineTree::add_interface(const std::string& name, const std::string& address, const std::string& state,
                                const std::string& megabits) const {
  const fs::path folder = address.empty() ? fs::path(root()) / "sys/devices/virtual/net" / name
                                          : fs::path(device_folder(address)) / "net" / name;
  fs::create_directories(folder);
  if (!address.empty()) fs::create_directory_symlink(device_folder(address), folder / "device");
  std::ofstream(folder / "operstate") << state << '\n';
  if (!megabits.empty()) std::ofstream(folder / "speed") << megabits << '\n';
  const fs::path link = fs::path(root()) / "sys/class/net" / name;
  fs::create_directories(link.parent_path());
  fs::create_directory_symlink(folder, link);
}

void MachineTree::add_rdma(const std::string& name, const std::string& address, const std::string& link_layer,
                           const std::string& rate, const std::string& interface) const {
  const fs::path folder = fs::path(device_folder(address)) / "infiniband" / name;
  fs::create_directories(folder / "ports/1");
  fs::create_directory_symlink(device_folder(address), folder / "device");
  std::ofstream(folder / "ports/1/link_layer") << link_layer << '\n';
  std::ofstream(folder / "ports/1/rate") << rate << '\n';
  std::ofstream(folder / "ports/1/state") << "4: ACTIVE\n";
  const fs::path link = fs::path(root()) / "sys/class/infiniband" / name;
  fs::create_directories(link.parent_path());
  fs::create_directory_symlink(folder, link);
  if (!interface.empty()) add_interface(interface, address, "up", "");
}

void MachineTree::add_host(int cores_of_socket, long kibibytes) const {
  const int cores = 2 * cores_of_socket;
  for (int cpu = 0; cpu < 2 * cores; ++cpu) {
    const std::string topology = fmt::format("sys/devices/system/cpu/cpu{}/topology/", cpu);
    const int core = cpu % cores;
    write(topology + "physical_package_id", std::to_string(core / cores_of_socket));
    write(topology + "core_id", std::to_string(core % cores_of_socket));
  }
  write("sys/devices/system/cpu/cpufreq/note", "no processor");
  write("sys/devices/system/node/node0/cpulist", "");
  write("sys/devices/system/node/node1/cpulist", "");
  write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Made-up CPU 9000\nmodel name\t: another");
  write("proc/meminfo", fmt::format("MemTotal:       {} kB\nHugepagesize:       2048 kB", kibibytes));
}

}  // namespace zeroplan::test
