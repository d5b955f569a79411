#include "executor/control.hpp"

#include <algorithm>

namespace zeroplan::executor {

Control agreed(const Control& own, ControlPlane& world) {
  Control result;
  for (const Control& of_rank : gathered(world, own)) {
    result.signal = std::max(result.signal, of_rank.signal);
    result.saves = result.saves || of_rank.saves;
  }
  return result;
}

}  // namespace zeroplan::executor
