#include "planner/describe/text/not_modelled.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "planner/describe/plan/engine.hpp"
#include "planner/describe/plan/optimizer.hpp"
#include "planner/describe/plan/plan.hpp"

namespace describe = zeroplan::describe;
using describe::NotModelled;
using describe::Vocabulary;

namespace {

std::vector<std::string> words_of(const NotModelled& entry) {
  std::istringstream stream{std::string(entry.words)};
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string refusal(const std::string& key, const std::string& value) {
  describe::PlanOptions options;
  zeroplan::Problems problems;
  describe::Value scalar;
  scalar.kind = describe::Value::Kind::scalar;
  scalar.text = value;
  describe::set_plan_option(options, key, scalar, "plan.yaml", problems);
  return problems.empty() ? "" : problems.list().front().text();
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("the words that the field uses are answered as what they are") {
  for (const char* word : {"pp", "pipeline", "ep", "cp", "sp", "lora", "qlora", "fp8", "sequence-parallel",
                           "virtual-pipeline", "pipeline_model_parallel_size", "load_in_4bit", "hsdp"}) {
    CAPTURE(word);
    CHECK(has(describe::not_modelled(Vocabulary::plan_key, word), "is not modelled yet"));
  }
  for (const char* word : {"muon", "lamb", "LARS", "sophia", "shampoo", "galore"}) {
    CAPTURE(word);
    CHECK(has(describe::not_modelled(Vocabulary::optimizer, word), "is not modelled yet"));
  }
  for (const char* word : {"deepspeed-chat", "fsdp1", "colossalai", "nemo", "axolotl", "torchtitan"}) {
    CAPTURE(word);
    CHECK(has(describe::not_modelled(Vocabulary::engine, word), "is not modelled yet"));
  }
  CHECK(describe::not_modelled(Vocabulary::plan_key, "zero").empty());
  CHECK(describe::not_modelled(Vocabulary::engine, "pp").empty());
}

// Every word of the table reaches the user through the reader of its kind; none hides one that is modelled, and
// none stands twice.
TEST_CASE("every word of the table is what its reader answers") {
  std::set<std::pair<Vocabulary, std::string>> seen;
  for (const NotModelled& entry : describe::not_modelled_words()) {
    CHECK((entry.is_modelled || !entry.what.empty()));
    for (const std::string& word : words_of(entry)) {
      CAPTURE(word);
      CHECK(seen.insert({entry.vocabulary, word}).second);
      const std::string answer = describe::not_modelled(entry.vocabulary, word);
      CHECK(has(answer, entry.is_modelled ? entry.instead : entry.what));
      std::string said;
      switch (entry.vocabulary) {
        case Vocabulary::plan_key:
          said = refusal(word, "2");
          break;
        case Vocabulary::optimizer:
          said = refusal("optimizer", word);
          break;
        case Vocabulary::engine:
          said = refusal("engine", word);
          break;
        case Vocabulary::dtype:
          said = refusal("dtype", word);
          break;
        case Vocabulary::offload:
          said = refusal("offload", word);
          break;
        case Vocabulary::attention:
          said = refusal("attention", word);
          break;
      }
      CHECK(has(said, answer));
    }
  }
}

TEST_CASE("the nearest that an answer names is there") {
  const std::vector<std::string> engines = describe::engine_names();
  const std::vector<std::string> optimizers = describe::optimizer_names();
  for (const NotModelled& entry : describe::not_modelled_words()) {
    const std::string instead(entry.instead);
    if (!instead.starts_with("nearest: ")) continue;
    CAPTURE(instead);
    const std::vector<std::string>& names = entry.vocabulary == Vocabulary::engine ? engines : optimizers;
    CHECK(
        std::any_of(names.begin(), names.end(), [&](const std::string& name) { return has(instead, name); }));
  }
}
