#include "reports/verdict.hpp"

#include <fmt/format.h>

#include <array>

namespace zeroplan::reports {

using predict::Prediction;
using predict::Verdict;

std::string verdict_word(Verdict verdict) {
  constexpr std::array<std::string_view, 4> words{"yes", "tightly", "no", "cannot say"};
  return std::string(words[static_cast<std::size_t>(verdict)]);
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

void set_verdict(Data& into, const Prediction& prediction) {
  const bool said = prediction.verdict != Verdict::cannot_say;
  into.set("fits", said ? Data(prediction.fits()) : Data())
      .set("verdict", predict::name_of(prediction.verdict))
      .set("verdict_reason", prediction.verdict_reason)
      .set("missing", missing_data(prediction.missing));
}

Data missing_data(const std::vector<predict::Missing>& missing) {
  Data list = Data::list();
  for (const predict::Missing& item : missing) {
    list.add(Data::map().set("key", item.key).set("sentence", item.sentence).set("how", item.how));
  }
  return list;
}

}  // namespace zeroplan::reports
