#include "executor/control.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace zeroplan::executor {

Control agreed(const Control& own, Communicator& world) {
  if (world.size() == 1) return own;
  // Two bytes a rank: signals have small numbers.
  std::array<std::uint8_t, 2> mine{static_cast<std::uint8_t>(own.signal),
                                   static_cast<std::uint8_t>(own.saves)};
  std::vector<std::uint8_t> all(mine.size() * static_cast<std::size_t>(world.size()));
  const auto as_tensor = [](auto& bytes) {
    return Tensor{reinterpret_cast<std::byte*>(bytes.data()), program::DataType::uint8,
                  static_cast<Elements>(bytes.size())};
  };
  world.all_gather(as_tensor(mine), as_tensor(all));
  Control result;
  for (std::size_t i = 0; i < all.size(); i += 2) {
    result.signal = std::max(result.signal, static_cast<int>(all[i]));
    result.saves = result.saves || all[i + 1] != 0;
  }
  return result;
}

}  // namespace zeroplan::executor
