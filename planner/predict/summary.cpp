#include "planner/predict/summary.hpp"

namespace zeroplan::predict {

void Summary::append(const Summary& later, std::int64_t count) {
  memory.append(later.memory, count);
  traffic.append(later.traffic, static_cast<double>(count));
  work.append(later.work, static_cast<double>(count));
  time.append(later.time, count);
}

Summary Summary::power(std::int64_t count) const {
  Summary result;
  result.append(*this, count);
  return result;
}

Summary summarize(const program::StepProgram& program, const StepCosts* costs, std::size_t begin,
                  std::size_t end) {
  Summary summary;
  summary.memory = read_memory(program, begin, end);
  summary.traffic = read_traffic(program, begin, end);
  summary.work = read_work(program, begin, end);
  if (costs != nullptr) summary.time = read_time(program, *costs, begin, end);
  return summary;
}

}  // namespace zeroplan::predict
