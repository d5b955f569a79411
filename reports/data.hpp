#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

// An answer as data: a tree of maps, lists and scalars in the order they were put in. JSON, YAML and CSV are
// written from it, and `explain` looks its keys up in it, so there is one list of keys.
namespace zeroplan::reports {

class Data;

// A template, because Data is not complete where a map of it is named.
template <class T>
struct NamedValue {
  std::string key;
  T value;
};
using DataEntry = NamedValue<Data>;

class Data {
 public:
  using List = std::vector<Data>;
  using Map = std::vector<DataEntry>;

  // NOLINTBEGIN(google-explicit-constructor): set("key", value) is what makes the code that fills a tree
  // readable.
  Data() = default;  // null
  Data(bool value) : value_(value) {}
  Data(int value) : value_(std::int64_t{value}) {}
  Data(std::int64_t value) : value_(value) {}
  Data(double value) : value_(value) {}
  Data(std::string value) : value_(std::move(value)) {}
  Data(std::string_view value) : value_(std::string(value)) {}
  Data(const char* value) : value_(std::string(value)) {}
  // NOLINTEND(google-explicit-constructor)

  static Data map();
  static Data list();
  static Data list_of(List items);

  // Adds `key` to a map, at its end; requires a map without that key.
  Data& set(std::string key, Data value);
  // The same under a dotted path: the maps on the way are made where they are missing.
  Data& set_at(std::string_view dotted, Data value);
  // Adds to a list.
  Data& add(Data value);

  // The value under a dotted path of map keys; nullptr where there is none.
  const Data* find(std::string_view dotted) const;

  template <class T>
  const T* as() const {
    return std::get_if<T>(&value_);
  }
  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, List, Map> value_;
};

// What stands under a dotted path, whole or not; 0 where there is no number.
double number_at(const Data& data, std::string_view dotted);
// 0 for what is no number.
double number_of(const Data& data);
// Empty where there is no text.
std::string text_at(const Data& data, std::string_view dotted);
// Empty where there is no list.
const Data::List& list_at(const Data& data, std::string_view dotted);

// A list of texts.
Data texts_data(const std::vector<std::string>& texts);

}  // namespace zeroplan::reports
