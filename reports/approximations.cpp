#include "reports/approximations.hpp"

#include <fmt/format.h>

namespace zeroplan::reports {

using program::Approximation;

Data approximations_data(const std::vector<Approximation>& approximations) {
  Data list = Data::list();
  for (const Approximation& approximation : approximations) {
    list.add(Data::map()
                 .set("key", approximation.key)
                 .set("what", approximation.what)
                 .set("trains_another_model", approximation.trains_another_model)
                 .set("changes_figures", approximation.changes_figures));
  }
  return list;
}

std::string approximation_text(const Approximation& approximation) {
  std::string_view effect = "the figures are those of the model, and so is what is trained";
  if (approximation.trains_another_model) {
    effect = approximation.changes_figures
                 ? "a run would train another model, and the figures are near its own"
                 : "a run would train another model; the figures are its own";
  }
  return fmt::format("{}: {} ({}).", approximation.key, approximation.what, effect);
}

void add_approximations(std::vector<Block>& blocks, const std::vector<Approximation>& approximations) {
  if (approximations.empty()) return;
  blocks.emplace_back(Heading{"Approximations"});
  for (const Approximation& approximation : approximations) {
    blocks.emplace_back(Paragraph{approximation_text(approximation)});
  }
}

}  // namespace zeroplan::reports
