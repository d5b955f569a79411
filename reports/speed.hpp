#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reports/figures.hpp"
#include "reports/report.hpp"

// How time and speed are told. docs/metrics.md defines every number.
namespace zeroplan::reports {

// step_seconds, exposed_seconds, busy_seconds, the rates of a step, and what a training comes to with what was asked for
// (training.tokens, training.price_per_gpu_hour).
std::vector<Figure> speed_figures();

inline constexpr std::string_view kStepSeconds = "step_seconds";
inline constexpr std::string_view kExposedPrefix = "exposed_seconds.";
inline constexpr std::string_view kBusyPrefix = "busy_seconds.";
inline constexpr std::string_view kTrainingPrefix = "training.";

// Every part, in the order in which they are shown.
std::array<predict::ExposedPart, predict::kExposedParts> exposed_parts();

// Seconds of a part alone, without waiting for other ranks; nothing for launch gaps, which are no work.
std::optional<double> busy_seconds(const predict::StepTime& time, predict::ExposedPart part);

// The time of a step by what it waits for, the speed and, where it is asked for, the training; or a sentence
// why the time is not known. `result`: figures_data() of the plan.
void add_speed(std::vector<Block>& blocks, const PredictedPlan& plan, const Data& result);

// "The time of a step is not known: ...", of figures_data().
std::string no_time_sentence(const Data& result);

}  // namespace zeroplan::reports
