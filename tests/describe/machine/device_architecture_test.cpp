#include "planner/describe/machine/device_architecture.hpp"

#include <doctest/doctest.h>

#include "planner/describe/text/embedded.hpp"

using namespace zeroplan::describe;

TEST_CASE("architectures: a device has those of its file, an unknown name those of other") {
  CHECK(architecture_of(find_device("a100-80gb")).name == "Ampere");
  CHECK(architecture_of(find_device("cpu")).name == "host");
  CHECK(architecture_of(find_device("rtx-4090")).name == "other");  // Ada has no file
  Device device;
  CHECK(&architecture_of(device) == &other_architecture());
  device.architecture = "Volta";  // made by hand
  CHECK(architecture_of(device).name == "Volta");
}

TEST_CASE("architectures: what a file leaves out is as in other, and only its own is as it says") {
  REQUIRE(embedded_architectures().size() == 7);
  const DeviceArchitecture& volta = find_architecture("Volta");
  const DeviceArchitecture& other = other_architecture();
  CHECK(volta.memory_fraction.value == other.memory_fraction.value);
  CHECK(volta.tiles.size() == other.tiles.size());
  CHECK(volta.matmul_fraction.value != other.matmul_fraction.value);
  CHECK(volta.aligned_size.has_value());
  CHECK_FALSE(find_architecture("Ampere").aligned_size.has_value());
  CHECK(find_architecture("Hopper").sustained_fraction.value < 1);
  CHECK(host_architecture().one_stream);
  CHECK_FALSE(other.one_stream);
}
