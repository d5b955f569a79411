#include "planner/describe/machine/cluster.hpp"
#include "tests/fuzz/refusal.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace zeroplan;
  fuzz::refuses_cleanly([&] { (void)describe::read_hardware_yaml(fuzz::parse(fuzz::as_text(data, size))); });
  return 0;
}
