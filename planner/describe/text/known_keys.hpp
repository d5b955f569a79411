#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/describe/text/document.hpp"
#include "planner/describe/text/left_out.hpp"

// The rule for every file that another program wrote: no key of it vanishes. A reader has a table of the keys
// that the format knows, each with what becomes of it; whatever the table does not hold is told with the
// nearest key that it does. Notes are a part of the answer (ResolvedPlan::notes, Model::notes).
namespace zeroplan::describe {

enum class KeyClass : std::uint8_t {
  used,                 // its value goes into the plan or the model, or is refused by the reader
  harmless,             // no effect on memory, traffic, FLOPs or time
  not_modelled,         // has one, and is passed over: a note says what that leaves out
  left_out,             // the run leaves it out and would train another model: an approximation says so
  left_out_of_figures,  // the same, and bytes, FLOPs or seconds leave it out too
  refused               // changes degrees, the model or what of it is trained: an error says so
};

struct KnownKey {
  std::string_view name;
  KeyClass kind = KeyClass::harmless;
  // not_modelled and left_out: what is planned instead; refused: what it would change.
  std::string_view meaning = {};
  // Values that say no more than the plan does, separated by blanks; numbers are compared as numbers. Without
  // any: false, 0, "none", "no" and "off". Null, "auto", an empty text, list or map, and a map whose `enabled`
  // is false are always neutral; a list is where every item is, a map where every value is one of these words.
  std::string_view neutral = {};
};

struct KeyTable {
  std::string_view section;  // dotted path, for the lists of tests; empty at the top of a file
  std::span<const KnownKey> keys;
};

// The keys of a section among `tables`; none where it is not there.
std::span<const KnownKey> keys_of(std::span<const KeyTable> tables, std::string_view section);

// Whether a key that the reader asked for counts as used, whatever the table says of it.
enum class AskedKeys : std::uint8_t { follow_the_table, are_used };

// Enters a note or a problem for every key of `map` that calls for one. The keys that the run leaves out go to
// `left_out`; only a table of a model's keys has such.
void settle_keys(MapReader& map, std::span<const KnownKey> table, AskedKeys asked,
                 std::vector<std::string>& notes, std::vector<LeftOut>* left_out = nullptr);

// Whether `value` is one of the values that call for nothing.
bool is_neutral(const Value& value, std::string_view neutral);

// "ds.json:7: zero_optimization.stage: ...", as messages of errors are written.
std::string note_at(const MapReader& map, std::string_view key, std::string text);

}  // namespace zeroplan::describe
