#pragma once

#include <span>
#include <string>
#include <string_view>

// Words that the field uses and zeroplan does not model, so that they are answered as what they are and not as
// slips of the fingers. One table; every reader of options, plan files, optimizers and engines asks it.
namespace zeroplan::describe {

enum class Vocabulary { plan_key, optimizer, engine, dtype, offload, attention };

struct NotModelled {
  Vocabulary vocabulary;
  std::string_view words;    // with blanks between, in small letters, with '_'
  std::string_view what;     // "pipeline parallelism"
  std::string_view instead;  // what to do, or the nearest that is modelled; empty where there is nothing
  bool is_modelled = false;  // only under another name, which `instead` says
};

std::span<const NotModelled> not_modelled_words();

// "pipeline parallelism is not modelled yet; --tp inside a node and --zero divide a model instead"; empty for a
// word that the table does not have. Case, '-' and '_' do not count.
std::string not_modelled(Vocabulary vocabulary, std::string_view word);

}  // namespace zeroplan::describe
