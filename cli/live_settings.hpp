#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "cli/command.hpp"

namespace zeroplan::cli {

// The options of a live run that are not the plan's.
struct LiveSettings {
  std::int64_t steps = 3;    // measured
  std::int64_t warm_up = 1;  // before them
  std::uint64_t seed = 1;
  std::string data, save, resume;  // files, or empty
  double learning_rate = 3e-4, weight_decay = 0.01, clip_norm = 1;
  int threads = 0;  // of a rank; 0: the processors divided by the ranks
  std::chrono::milliseconds timeout{60'000};
  bool force = false;
};

// Throws ConfigurationError with every option that is wrong.
LiveSettings read_live_settings(const Request& request);

}  // namespace zeroplan::cli
