#pragma once

#include <string>
#include <vector>

#include "planner/describe/plan/plan.hpp"
#include "reports/model_data.hpp"
#include "reports/report.hpp"

// How the three things a user describes are told again: in data, and in a line.
namespace zeroplan::reports {

Data machine_data(const describe::Cluster& cluster);
Data plan_data(const describe::Plan& plan);
Data assumed_data(const std::vector<describe::Assumption>& assumptions);

std::string model_line(const describe::Model& model, std::int64_t sequence);
std::string machine_line(const describe::Cluster& cluster);
std::string layout_line(const describe::Plan& plan);
std::string engine_line(const describe::Plan& plan);
std::string batch_line(const describe::Plan& plan);

// {"model", "machine", "plan"}.
Data inputs_data(const describe::Model& model, const describe::ResolvedPlan& resolved);

// What every answer about a plan starts with: model, machine, plan, engine and batch, one line each.
void add_inputs(std::vector<Block>& blocks, const describe::Model& model,
                const describe::ResolvedPlan& resolved);

// The model's notes, then the plan's: what stood in a file and the answer does not hold.
Data notes_data(const describe::Model& model, const describe::ResolvedPlan& resolved);

// What every answer about a plan ends with: the approximations, the notes and the assumptions, once.
void add_assumptions(std::vector<Block>& blocks, const describe::Model& model,
                     const describe::ResolvedPlan& resolved);

}  // namespace zeroplan::reports
