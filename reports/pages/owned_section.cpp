#include <fmt/format.h>

#include <algorithm>

#include "planner/program/compile.hpp"
#include "reports/keyed_table.hpp"
#include "reports/pages/sections.hpp"

namespace zeroplan::reports {
namespace {

constexpr std::int64_t kMostRanks = 8;  // the first ones, and the last

}  // namespace

// Partitions are of equal size, so the last ranks own less of them than the first and the rest is padding.
Data owned_data(const PlanPage& page) {
  Data list = Data::list();
  const describe::Plan& plan = page.fit.resolved.plan;
  if (plan.zero_stage == 0 || page.fit.prediction.program().states_only) return list;
  for (std::int64_t rank = 0; rank < plan.data_parallel; ++rank) {
    if (rank >= kMostRanks - 1 && rank != plan.data_parallel - 1) continue;
    const program::StepProgram program = program::compile(page.fit.model, plan, {rank, 0});
    std::int64_t owned = 0, held = 0;
    for (const program::UnitPlacement& unit : program.units) {
      owned += unit.owned * unit.layers;
      held += unit.partition * unit.layers;
    }
    list.add(Data::map()
                 .set("data_parallel_rank", rank)
                 .set("owned_elements", owned)
                 .set("padding_elements", held - owned));
  }
  return list;
}

void add_owned(std::vector<Block>& blocks, const Data& data) {
  const Data::List& rows = list_at(data, "owned");
  if (rows.empty()) return;
  blocks.emplace_back(Heading{"Who holds what"});
  blocks.emplace_back(table_of(rows, {{{"data-parallel rank", false}, "data_parallel_rank"},
                                      {{"parameters whose optimizer state it owns"}, "owned_elements"},
                                      {{"padding"}, "padding_elements"}}));
}

}  // namespace zeroplan::reports
