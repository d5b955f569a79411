#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "planner/describe/plan/plan.hpp"
#include "planner/predict/prediction.hpp"
#include "reports/report.hpp"

// How time and speed are told: in data, in blocks and, for `explain`, key by key. docs/metrics.md defines
// every number.
namespace zeroplan::reports {

// A plan of which the time is told. Refers to what it is made from.
struct TimedPlan {
  const predict::Prediction& prediction;
  const describe::Plan& plan;
  const describe::Cluster& cluster;
  const predict::TrainingGoal& goal;
};

// The rates of a step and what a training comes to; nothing where the time of a step is not known.
std::optional<predict::TrainingMetrics> metrics_of(const TimedPlan& timed);

// One number of TrainingMetrics under its key of zeroplan.fit/1.
struct SpeedKey {
  std::string_view name;  // "tokens_per_second", "training.days"
  std::string_view unit;
  std::string_view what;
  std::optional<double> (*read)(const predict::TrainingMetrics& metrics);
};
std::span<const SpeedKey> speed_keys();

inline constexpr std::string_view kExposedPrefix = "exposed_seconds.";
inline constexpr std::string_view kBusyPrefix = "busy_seconds.";
inline constexpr std::string_view kTrainingPrefix = "training.";

// Every part, in the order in which they are shown.
std::array<predict::ExposedPart, predict::kExposedParts> exposed_parts();

// Seconds of a part alone, without waiting for other ranks; nothing for launch gaps, which are no work.
std::optional<double> busy_seconds(const predict::StepTime& time, predict::ExposedPart part);

// Adds step_seconds, exposed_seconds, busy_seconds, every key of speed_keys() and what was asked
// (training.tokens, training.price_per_gpu_hour) to a map; null where a number is not known or not asked for.
void set_speed(Data& result, const TimedPlan& timed);

// The time of a step by what it waits for, the speed and, where it is asked for, the training; or a sentence
// why the time is not known.
void add_speed(std::vector<Block>& blocks, const TimedPlan& timed);

// "The time of a step is not known: ...".
std::string no_time_sentence(const TimedPlan& timed);

// A number with the decimals that give `scale`, or itself, four digits; whole from 1,000 on.
Cell four_digits(double value, double scale);
Cell four_digits(double value);

}  // namespace zeroplan::reports
