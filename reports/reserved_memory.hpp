#pragma once

#include "planner/predict/prediction.hpp"

namespace zeroplan::reports {

// What of a prediction the plan's engine holds and no instruction uses (Buffer::reserved), of one rank: by
// category at the device's peak, and on the host, where it is held through the whole step.
struct ReservedBytes {
  program::CategoryBytes device{}, host{};
};
ReservedBytes reserved_at_peak(const predict::Prediction& prediction);

}  // namespace zeroplan::reports
