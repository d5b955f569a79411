#pragma once

#include <string>

#include "tests/support/command.hpp"

namespace zeroplan::test {

// A made-up /proc and /sys in a folder that is gone with this object. Addresses are spelled "0000:1a:00.0".
class MachineTree {
 public:
  std::string root() const { return folder_.path(); }
  void write(const std::string& path, const std::string& text) const;

  // A PCI device below the root "pci0000:NN", behind a bridge.
  void add_pci(const std::string& root, const std::string& address) const;
  // An RDMA device and its interface (empty: none), on a PCI device that is there.
  void add_rdma(const std::string& name, const std::string& address, const std::string& link_layer,
                const std::string& rate, const std::string& interface) const;
  // An interface of the system, on a PCI device that is there; address empty: of no device, as a bridge.
  void add_interface(const std::string& name, const std::string& address, const std::string& state,
                     const std::string& megabits) const;
  // Processors of two sockets with two threads a core, memory and NUMA nodes.
  void add_host(int cores_of_socket, long kibibytes) const;

 private:
  std::string device_folder(const std::string& address) const;

  TemporaryFolder folder_;
};

}  // namespace zeroplan::test
