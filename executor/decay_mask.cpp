#include "executor/decay_mask.hpp"

#include <algorithm>

namespace zeroplan::executor {

namespace {

bool is_matrix(std::string_view name) {
  return !name.ends_with(".bias") && name.find("norm") == std::string_view::npos;
}

}  // namespace

DecayMask::DecayMask(const program::StepProgram& program) : of_unit_(program.units.size()) {
  for (const program::TensorPlacement& tensor : program.tensors) {
    if (is_matrix(tensor.name)) continue;
    const program::UnitPlacement& unit = program.units[tensor.unit];
    const Elements first = program.own_begin(unit);
    const ElementRange range{
        std::max<Elements>(0, tensor.offset - first),
        std::min(unit.owned, tensor.offset - first + tensor.copies * tensor.outputs * tensor.inputs)};
    if (range.begin < range.end) of_unit_[tensor.unit].push_back(range);
  }
  for (std::vector<ElementRange>& ranges : of_unit_) {
    std::sort(ranges.begin(), ranges.end(),
              [](const ElementRange& a, const ElementRange& b) { return a.begin < b.begin; });
  }
}

std::span<const ElementRange> DecayMask::undecayed(std::uint32_t unit) const {
  if (unit == 0) return {};
  return of_unit_[unit - 1];
}

}  // namespace zeroplan::executor
