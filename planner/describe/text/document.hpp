#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/error.hpp"
#include "planner/units.hpp"

// What a YAML or JSON file says, with the line of everything, before anything is interpreted. One tree for
// both formats, so a reader of models or plans is written once. Scalars stay text until a reader says what
// they mean.
namespace zeroplan::describe {

struct Entry;

struct Value {
  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  int line = 0;
  std::string text;            // scalar
  bool quoted = false;         // scalar between quotes; "500000000" still passes where a number is asked for
  std::vector<Value> items;    // list
  std::vector<Entry> entries;  // map, in file order; keys are unique

  const Value* find(std::string_view key) const;
};

struct Entry {
  std::string key;
  int line = 0;
  Value value;
};

struct Document {
  std::string source;  // file name for messages
  Value root;
};

// Both throw ConfigurationError with source and line. Refused: duplicate keys, anchors, aliases, tags,
// several documents, keys that are not scalars, nesting deeper than 64, more than 16 MiB of text (1 MiB of
// YAML, which takes a hundred times that to scan), more than 200,000 values, control characters, text that
// is not UTF-8, truncated text. Every duplicate key is told at once; any other problem ends the reading.
Document parse_yaml(std::string_view text, std::string source);
Document parse_json(std::string_view text, std::string source);

// The text of a file. Throws ConfigurationError naming the file when it cannot be read, is a folder, is not a
// regular file, or is larger than 16 MiB.
std::string read_text_file(const std::string& path);

// Reads one map strictly. Getters return nullopt when the key is absent or explicitly null; when the value is
// wrong they enter a problem (file, line, dotted key, value found, what was expected) and return nullopt too,
// so that one pass reports everything. finish() enters one problem for each key that no getter asked for,
// with the nearest known one.
class MapReader {
 public:
  // `path` is the dotted path of `map` in its file, empty at the root. A `map` of another kind is a problem
  // at once.
  MapReader(const Value& map, std::string source, std::string path, Problems& problems);

  // Present and not null. Counts as asking for the key.
  bool has(std::string_view key);
  std::optional<std::int64_t> integer(std::string_view key, std::int64_t minimum, std::int64_t maximum);
  std::optional<std::int64_t> count(std::string_view key, std::int64_t minimum,
                                    std::int64_t maximum);  // parse_count
  std::optional<double> real(std::string_view key, double minimum, double maximum);
  std::optional<bool> boolean(std::string_view key);
  std::optional<Bytes> bytes(std::string_view key);  // parse_bytes
  std::optional<std::string> string(std::string_view key);
  // The index in `names` of the value. The problem lists the names and the nearest.
  std::optional<std::size_t> one_of(std::string_view key, const std::vector<std::string>& names);
  // A nested map, or a list; nullptr when absent.
  const Value* map(std::string_view key);
  const Value* list(std::string_view key);
  const Value* any(std::string_view key);  // marks as known, whatever it holds

  // Enters "missing" for `key`; `expected` says what belongs there. Does nothing where the key has a value:
  // what is wrong with that has been told. Nor where the map itself was not one.
  void missing(std::string_view key, std::string_view expected);
  // Enters a problem at `key` (its line when present).
  void problem(std::string_view key, std::string message);
  // Keys that are known but not read here.
  void ignore(std::string_view key);
  // Accept every remaining key (foreign files such as config.json).
  void allow_unknown() { allow_unknown_ = true; }
  void finish();

  const Value* value() const { return map_; }                       // the map; nullptr where it was none
  const std::vector<std::string>& asked() const { return known_; }  // keys that a getter or ignore() named
  const std::string& source() const { return source_; }
  const std::string& path() const { return path_; }
  std::string dotted(std::string_view key) const;
  Problems& problems() { return problems_; }

 private:
  const Value* take(std::string_view key, Value::Kind kind, std::string_view expected);

  const Value* map_ = nullptr;
  std::string source_;
  std::string path_;
  Problems& problems_;
  std::vector<std::string> known_;
  bool allow_unknown_ = false;
};

}  // namespace zeroplan::describe
