#include "reports/report.hpp"

namespace zeroplan::reports {

void add_notes(std::vector<Block>& blocks, const std::vector<std::string>& notes) {
  if (notes.empty()) return;
  blocks.emplace_back(Heading{"Notes"});
  for (const std::string& note : notes) blocks.emplace_back(Paragraph{note});
}

}  // namespace zeroplan::reports
