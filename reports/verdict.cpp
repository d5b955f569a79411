#include "reports/verdict.hpp"

#include <fmt/format.h>

#include <array>

namespace zeroplan::reports {

using predict::Prediction;
using predict::Verdict;

std::string verdict_word(std::string_view name) {
  constexpr std::array<std::string_view, 4> words{"yes", "tightly", "no", "cannot say"};
  std::size_t verdict = 0;
  while (predict::name_of(static_cast<Verdict>(verdict)) != name) ++verdict;
  return std::string(words[verdict]);
}

std::string verdict_sentence(const Prediction& prediction) {
  constexpr std::array<std::string_view, 4> words{"It fits", "It fits tightly", "It does not fit",
                                                  "Whether it fits cannot be said"};
  return fmt::format("{}: {}.", words[static_cast<std::size_t>(prediction.verdict)],
                     prediction.verdict_reason);
}

void add_verdict(std::vector<Block>& blocks, const Prediction& prediction) {
  blocks.emplace_back(Paragraph{verdict_sentence(prediction)});
  for (const predict::Missing& item : prediction.missing) {
    blocks.emplace_back(Paragraph{fmt::format("Missing: {}. To give it: {}.", item.key, item.how)});
  }
}

Data missing_data(const std::vector<predict::Missing>& missing) {
  Data list = Data::list();
  for (const predict::Missing& item : missing) {
    list.add(Data::map().set("key", item.key).set("sentence", item.sentence).set("how", item.how));
  }
  return list;
}

}  // namespace zeroplan::reports
