#pragma once

#include <string_view>

#include "planner/describe/model/model.hpp"
#include "reports/data.hpp"

namespace zeroplan::reports {

// Every shape of a model under the names of its YAML description, then its parameter counts.
Data model_data(const describe::Model& model, std::int64_t sequence);

std::string_view name_of(describe::Architecture value);
std::string_view name_of(describe::Norm value);
std::string_view name_of(describe::Activation value);
std::string_view name_of(describe::Position value);
std::string_view name_of(describe::Bias value);
std::string_view name_of(describe::QueryKeyNorm value);
std::string_view name_of(describe::NormPlacement value);
std::string_view name_of(describe::Sharding value);
std::string_view name_of(describe::ParameterGroup::Kind value);

}  // namespace zeroplan::reports
