#pragma once

#include <string_view>
#include <vector>

#include "planner/describe/model/model.hpp"
#include "reports/report.hpp"

namespace zeroplan::reports {

// Schema zeroplan.models/1: one row per model.
Report models_list_report(std::string_view version, const std::vector<describe::Model>& models);

// Schema zeroplan.model_description/1: every shape, the parameter tensors of one layer of each kind, and the
// count beside the published one.
Report model_report(std::string_view version, const describe::Model& model);

// Schema zeroplan.model_count/1: the number of parameters.
Report model_count_report(std::string_view version, const describe::Model& model);

}  // namespace zeroplan::reports
