#include "reports/explanation.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "reports/numbers.hpp"
#include "reports/program_terms.hpp"
#include "reports/speed_explanation.hpp"

namespace zeroplan::reports {
namespace {

using program::Buffer;
using program::Category;
using program::GroupKind;

// Where the equation of a category stands.
constexpr std::array<std::string_view, program::kCategories> kCategorySources{
    "ZeRO, arXiv 1910.02054, Sections 3.1 and 5 (P_os+g+p divides by N_d)",
    "ZeRO, arXiv 1910.02054, Sections 3.1 and 5 (P_os+g divides by N_d)",
    "ZeRO, arXiv 1910.02054, Sections 3.1 and 5: K bytes per parameter (P_os divides by N_d)",
    "Korthikanti et al., arXiv 2205.05198, Section 4; docs/equations.md, \"Activations\"",
    "ZeRO, arXiv 1910.02054, Sections 6.1 and 8 (P_a divides by N_m); docs/equations.md, \"Activations\"",
    "ZeRO, arXiv 1910.02054, Section 7.2.2: weights gathered for the layer being computed",
    "ZeRO, arXiv 1910.02054, Section 6.2 (C_B)",
    "docs/equations.md, \"Logits\"",
    "docs/equations.md, \"Workspace\""};

const std::string kAliveFormula =
    "the sum over buffers alive at the peak of instances x elements x bytes per element";

Explanation explain_category(std::string_view name, const PredictedPlan& input) {
  if (name == "overhead") {
    return {"the sum of what the runtime takes beside the program's own buffers",
            overhead_terms(input.prediction),
            "the hardware profile (zeroplan hw show), each figure with its source"};
  }
  for (std::size_t i = 0; i < program::kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    if (program::name_of(category) != name) continue;
    return {kAliveFormula + ", of this category",
            buffer_terms(input.prediction, [&](const Buffer& buffer) { return buffer.category == category; }),
            std::string(kCategorySources[i])};
  }
  return {};
}

Explanation explain_peak(const PredictedPlan& input) {
  Explanation result{kAliveFormula + ", plus the overhead",
                     buffer_terms(input.prediction, [](const Buffer&) { return true; }),
                     "docs/equations.md, \"The peak\""};
  for (Term& term : overhead_terms(input.prediction)) result.terms.push_back(std::move(term));
  return result;
}

Explanation explain_capacity(const PredictedPlan& input) {
  const Bytes reserve = input.resolved.plan.reserve_bytes;
  const auto usable = static_cast<double>(input.prediction.capacity_bytes + reserve);
  Explanation result{"what a program can use on the device, less the reserve",
                     {{"usable", input.prediction.capacity_basis, usable}},
                     "the hardware profile (zeroplan hw show " + input.resolved.cluster.device->name + ")"};
  if (reserve > 0) result.terms.push_back({"reserve", "--reserve", -static_cast<double>(reserve)});
  return result;
}

// Host memory beyond the buffers is the engine's: pinned copies, whole models being loaded.
Explanation explain_host(const PredictedPlan& input, bool per_node) {
  const double per_device = static_cast<double>(input.prediction.host_bytes_per_device);
  Explanation result{
      "the sum over host buffers of instances x elements x bytes per element, and what the engine adds",
      host_buffer_terms(input.prediction),
      "ZeRO-Offload, arXiv 2101.06840, Section 3; engine " + input.resolved.plan.engine->name};
  double sum = 0;
  for (const Term& term : result.terms) sum += term.value;
  if (sum != per_device) {
    result.terms.push_back({"engine",
                            fmt::format("host factor {}", shortest(input.resolved.plan.engine->host_factor)),
                            per_device - sum});
  }
  if (per_node) {
    const double node = static_cast<double>(input.prediction.host_bytes_per_node);
    if (node != per_device) {
      result.terms.push_back({"other devices of the node",
                              fmt::format("{} devices in all", input.resolved.cluster.devices_per_node),
                              node - per_device});
    }
  }
  return result;
}

Explanation explain_traffic(std::string_view name, const PredictedPlan& input) {
  const program::StepProgram& step = input.prediction.program();
  const std::string ring =
      "the sum over collectives of calls x elements x bytes per element x the part a rank sends in a ring of "
      "n";
  if (name == "data_parallel") {
    return {ring, traffic_terms(step, GroupKind::data_parallel), "ZeRO, arXiv 1910.02054, Section 7"};
  }
  if (name == "tensor_parallel") {
    return {ring, traffic_terms(step, GroupKind::tensor_parallel),
            "Megatron-LM, arXiv 1909.08053, Section 3; ZeRO, Section 8"};
  }
  return {"the sum over copies of times x elements x bytes per element",
          copy_terms(step, name == "device_to_host" ? program::Class::to_host : program::Class::to_device),
          "ZeRO-Offload, arXiv 2101.06840, Section 3"};
}

Explanation explain_flops(std::string_view name, const PredictedPlan& input) {
  const program::StepProgram& step = input.prediction.program();
  const bool executed = name.starts_with("hardware");
  Explanation result{"the sum over matrix products of times x 2 m n k", flops_terms(step, executed),
                     executed
                         ? "Narayanan et al., arXiv 2104.04473, Appendix (recomputation included)"
                         : "Chowdhery et al. (PaLM), arXiv 2204.02311, Appendix B (recomputation left out)"};
  if (name.ends_with("all_ranks")) {
    const auto ranks = static_cast<double>(input.resolved.plan.devices());
    for (Term& term : result.terms) {
      term.arithmetic += fmt::format(" x {} ranks", input.resolved.plan.devices());
      term.value *= ranks;
    }
  }
  return result;
}

std::vector<ExplainKey> make_keys() {
  std::vector<ExplainKey> keys;
  for (const Figure& figure : figures()) {
    if (!figure.unit.empty()) keys.push_back({figure.key, figure.unit, figure.what});
  }
  keys.push_back({"parameters", "parameters", "of the whole model"});
  keys.push_back({"active_parameters", "parameters", "that one token uses"});
  return keys;
}

}  // namespace

const std::vector<ExplainKey>& explain_keys() {
  static const std::vector<ExplainKey> keys = make_keys();
  return keys;
}

std::string why_not_known(std::string_view key, const PredictedPlan& input) {
  return is_time_or_speed(key) ? why_no_time_or_speed(key, input) : std::string();
}

Explanation explain(std::string_view key, const PredictedPlan& input) {
  if (is_time_or_speed(key)) return explain_time_or_speed(key, input);
  const std::int64_t sequence = input.resolved.plan.sequence;
  const std::size_t dot = key.find('.');
  const std::string_view first = key.substr(0, dot);
  const std::string_view rest = dot == std::string_view::npos ? "" : key.substr(dot + 1);
  if (first == "by_category_bytes") return explain_category(rest, input);
  if (first == "host_bytes") return explain_host(input, rest == "per_node");
  if (first == "traffic_bytes") return explain_traffic(rest, input);
  if (first == "flops") return explain_flops(rest, input);
  if (key == "peak_bytes") return explain_peak(input);
  if (key == "capacity_bytes") return explain_capacity(input);
  if (key == "model_state_bytes") {
    return {"the sum over buffers held through the step of instances x elements x bytes per element",
            model_state_terms(input.prediction.program()), "ZeRO, arXiv 1910.02054, Section 5, Figure 1"};
  }
  if (key == "traffic_psi") {
    return {
        "elements sent per parameter of the rank, for many ranks: 2 for an all-reduce, 1 for a "
        "reduce-scatter or "
        "all-gather",
        psi_terms(input.prediction), "ZeRO, arXiv 1910.02054, Section 7"};
  }
  if (key == "parameters") {
    return {"the sum over groups of layers x parameters of a layer", parameter_terms(input.model, sequence),
            "docs/equations.md, \"Parameters\""};
  }
  return {"the parameters less what one token does not use", active_parameter_terms(input.model, sequence),
          "docs/equations.md, \"Parameters\""};
}

}  // namespace zeroplan::reports
