#include "executor/device/cpu/huge_pages.hpp"

#include <charconv>
#include <cstdint>
#include <fstream>

namespace zeroplan::executor::cpu {

bool huge_pages_pay(const std::string& order) {
  constexpr std::uint32_t kHighestOrder = 64;  // of any kernel, with room
  std::uint32_t pieces = 0;
  const auto [stop, error] = std::from_chars(order.data(), order.data() + order.size(), pieces);
  return error != std::errc() || pieces > kHighestOrder;
}

bool huge_pages_pay() {
  std::string order;
  std::ifstream("/sys/module/page_reporting/parameters/page_reporting_order") >> order;
  return huge_pages_pay(order);
}

}  // namespace zeroplan::executor::cpu
