#include "tests/support/predicted.hpp"

#include "tests/describe/plan/plan_support.hpp"

namespace zeroplan::test {

using predict::Prediction;

namespace {

Prediction predict_resolved(const std::string& model, const describe::ResolvedPlan& resolved) {
  return predict::predict(describe::resolve_model(model), resolved.plan, resolved.cluster);
}

}  // namespace

describe::ResolvedPlan planned(const std::string& model, const std::string& words,
                               const std::string& hardware) {
  // Formulas are those of the native engine where a test names no other.
  const bool named = words.find("engine=") != std::string::npos;
  return testing::resolved(named           ? words
                           : words.empty() ? "engine=native"
                                           : "engine=native " + words,
                           model, hardware);
}

Prediction predicted(const std::string& model, const std::string& words, const std::string& hardware) {
  return predict_resolved(model, planned(model, words, hardware));
}

Prediction predicted_in(double capacity_gib, const std::string& model, const std::string& words,
                        const std::string& hardware) {
  describe::ResolvedPlan resolved = planned(model, words, hardware);
  describe::Figure figure;
  figure.value = capacity_gib * static_cast<double>(kGiB);
  resolved.cluster.device.edit().capacity.cuda_bytes = figure;
  return predict_resolved(model, resolved);
}

double held_bytes(const Prediction& prediction, program::Category category) {
  return static_cast<double>(prediction.memory().persistent[static_cast<std::size_t>(category)]);
}

double peak_bytes(const Prediction& prediction, program::Category category) {
  return static_cast<double>(prediction.memory().at_peak[static_cast<std::size_t>(category)]);
}

double buffer_bytes(const Prediction& prediction, std::string_view name) {
  double sum = 0;
  for (const predict::LiveBuffer& live : predict::live_at_peak(prediction.program(), prediction.memory())) {
    if (prediction.program().buffers[live.buffer].name == name) sum += static_cast<double>(live.bytes);
  }
  return sum;
}

double moved_elements(const Prediction& prediction, program::GroupKind group, program::Op collective) {
  double sum = 0;
  for (const predict::TrafficEntry& entry : prediction.traffic().entries) {
    if (entry.group == group && entry.collective == collective) sum += entry.elements;
  }
  return sum;
}

double sent_bytes(const Prediction& prediction, program::Op collective, program::Phase phase) {
  double sum = 0;
  for (const predict::TrafficEntry& entry : prediction.traffic().entries) {
    if (entry.collective == collective && entry.phase == phase) sum += entry.sent_bytes;
  }
  return sum;
}

}  // namespace zeroplan::test
