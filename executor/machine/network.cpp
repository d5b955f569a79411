#include "executor/machine/network.hpp"

#include <algorithm>
#include <string>
#include <system_error>

#include "executor/machine/system_files.hpp"

namespace zeroplan::executor {

namespace {

using std::filesystem::path;

constexpr double kMegabitsOfGigabit = 1e3;

std::vector<std::string> sorted_names(const path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The folder that a link of sysfs leads to, /sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0; empty where there is none.
path resolved(const path& link) {
  std::error_code error;
  const path target = std::filesystem::canonical(link, error);
  return error ? path() : target;
}

// The part of such a folder that names the root of its PCIe tree.
std::optional<std::string> pci_root_of(const path& device) {
  for (const path& part : device) {
    const std::string name = part.string();
    if (name.starts_with("pci") && name.find(':') != std::string::npos) return name;
  }
  return std::nullopt;
}

bool is_pci_address(const std::string& name) {
  return name.size() == 12 && name[4] == ':' && name[7] == ':' && name[10] == '.';
}

// The last PCI device on the way to it: a virtio interface stands below one.
std::optional<std::string> pci_address_of(const path& device) {
  std::optional<std::string> address;
  for (const path& part : device) {
    if (is_pci_address(part.string())) address = part.string();
  }
  return address;
}

void place(const path& device, FoundNic& nic) {
  nic.pci_address = pci_address_of(device);
  nic.pci_root = pci_root_of(device);
}

// "400 Gb/sec (4X NDR)", "2.5 Gb/sec".
std::optional<double> gigabits_of(const std::string& text) {
  try {
    return std::stod(text);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::string kind_of(const std::string& link_layer) {
  if (link_layer == "InfiniBand") return "InfiniBand";
  return link_layer == "Ethernet" ? "RoCE" : "RDMA";
}

FoundNic read_rdma(const path& folder, const std::string& name) {
  FoundNic nic;
  nic.name = name;
  place(resolved(folder / "device"), nic);
  nic.interfaces = sorted_names(folder / "device" / "net");
  double rate = 0;
  for (const std::string& port : sorted_names(folder / "ports")) {
    const path of_port = folder / "ports" / port;
    nic.kind = kind_of(first_line(of_port / "link_layer").value_or(""));
    if (const auto state = first_line(of_port / "state")) {  // "4: ACTIVE"
      nic.active = nic.active.value_or(false) || state->find("ACTIVE") != std::string::npos;
    }
    rate += gigabits_of(first_line(of_port / "rate").value_or("")).value_or(0);
  }
  if (rate > 0) nic.gbits_per_s = rate;
  return nic;
}

FoundNic read_interface(const path& folder, const std::string& name) {
  FoundNic nic;
  nic.name = name;
  nic.kind = "Ethernet";
  place(resolved(folder / "device"), nic);
  if (const auto state = first_line(folder / "operstate"); state && *state != "unknown") {
    nic.active = *state == "up";
  }
  // -1 where it is down or the driver does not know, as virtio's.
  const auto megabits = number_in(folder / "speed");
  if (megabits && *megabits > 0) nic.gbits_per_s = static_cast<double>(*megabits) / kMegabitsOfGigabit;
  return nic;
}

bool belongs_to_one_of(const std::vector<FoundNic>& nics, const std::string& interface) {
  return std::any_of(nics.begin(), nics.end(), [&](const FoundNic& nic) {
    return std::find(nic.interfaces.begin(), nic.interfaces.end(), interface) != nic.interfaces.end();
  });
}

}  // namespace

std::vector<FoundNic> read_nics(const std::vector<FoundGpu>& gpus, const path& root) {
  const path rdma = root / "sys/class/infiniband";
  const path net = root / "sys/class/net";
  std::vector<FoundNic> nics;
  for (const std::string& name : sorted_names(rdma)) nics.push_back(read_rdma(rdma / name, name));
  for (const std::string& name : sorted_names(net)) {
    std::error_code error;
    const bool is_hardware = std::filesystem::exists(net / name / "device", error);
    if (is_hardware && !belongs_to_one_of(nics, name)) nics.push_back(read_interface(net / name, name));
  }
  for (const FoundGpu& gpu : gpus) {
    if (!gpu.pci_address) continue;
    const auto gpu_root = pci_root_of(resolved(root / "sys/bus/pci/devices" / *gpu.pci_address));
    for (FoundNic& nic : nics) {
      if (gpu_root && nic.pci_root == gpu_root) nic.gpus.push_back(gpu.index);
    }
  }
  return nics;
}

}  // namespace zeroplan::executor
