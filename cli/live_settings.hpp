#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "cli/command.hpp"
#include "cli/run_device.hpp"
#include "executor/device/device.hpp"
#include "executor/rate_schedule.hpp"
#include "executor/saving.hpp"
#include "executor/token_file.hpp"

namespace zeroplan::cli {

// The options of a live run that are not the plan's.
struct LiveSettings {
  std::int64_t steps = 3;    // measured
  std::int64_t warm_up = 1;  // before them
  std::uint64_t seed = 1;
  std::string data, resume, weights, export_to;  // files, or empty
  executor::SavePlan save;
  executor::TokenType data_type = executor::TokenType::automatic;
  bool shuffle = true;  // the data
  double learning_rate = 3e-4, weight_decay = 0.01, clip_norm = 1;
  executor::RateSchedule rate;
  executor::Decayed decayed = executor::Decayed::matrices;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double loss_scale = 65536;  // to begin with, fp16
  std::int64_t loss_scale_window = 1000;
  int threads = 0;  // of a rank; 0: the processors divided by the ranks
  std::chrono::milliseconds timeout{60'000};
  bool pin = true;                    // ranks to cores, where they fit
  std::int64_t against_one_rank = 0;  // steps that are taken again on one rank
  bool force = false;
  RunDevice device;
};

// Throws ConfigurationError with every option that is wrong.
LiveSettings read_live_settings(const Request& request);

// Throws ConfigurationError with every option that was given and that a run of the plan would not use: a loss
// scale in fp32, Adam's epsilon without Adam.
void require_used(const Request& request, const describe::Plan& plan);

}  // namespace zeroplan::cli
