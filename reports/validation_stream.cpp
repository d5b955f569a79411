#include "reports/validation_stream.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace zeroplan::reports {
namespace {

// What is known before the first step.
constexpr std::array<std::string_view, 8> kOfStart{"schema",         "version", "environment", "inputs",
                                                   "approximations", "assumed", "notes",       "predicted"};

bool is_of_start(const std::string& key) {
  return std::find(kOfStart.begin(), kOfStart.end(), key) != kOfStart.end();
}

// The steps have lines of their own.
Data without_steps(const Data& measured) {
  const auto* map = measured.as<Data::Map>();
  if (map == nullptr) return measured;
  Data rest = Data::map();
  for (const DataEntry& entry : *map) {
    if (entry.key != "steps") rest.set(entry.key, entry.value);
  }
  return rest;
}

}  // namespace

Data step_data(const program::StepMeasurement& step) {
  return Data::map()
      .set("step", step.step)
      .set("warm_up", step.warm_up)
      .set("loss", step.loss)
      .set("gradient_norm", step.gradient_norm)
      .set("learning_rate", step.learning_rate)
      .set("loss_scale", step.loss_scale)
      .set("skipped", step.skipped)
      .set("seconds", step.seconds)
      .set("peak_bytes", step.peak_bytes);
}

Data start_line(const ValidationAnswer& answer) {
  const Data whole = validation_report(answer).data;
  Data line = Data::map().set("record", "start");
  for (const DataEntry& entry : *whole.as<Data::Map>()) {
    if (is_of_start(entry.key)) line.set(entry.key, entry.value);
  }
  return line;
}

Data step_line(const program::StepMeasurement& step) {
  Data line = Data::map().set("record", "step");
  const Data values = step_data(step);
  for (const DataEntry& entry : *values.as<Data::Map>()) line.set(entry.key, entry.value);
  return line;
}

Data end_line(const ValidationAnswer& answer) {
  const Data whole = validation_report(answer).data;
  Data line = Data::map().set("record", "end");
  for (const DataEntry& entry : *whole.as<Data::Map>()) {
    if (!is_of_start(entry.key))
      line.set(entry.key, entry.key == "measured" ? without_steps(entry.value) : entry.value);
  }
  return line;
}

}  // namespace zeroplan::reports
