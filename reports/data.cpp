#include "reports/data.hpp"

#include <algorithm>

namespace zeroplan::reports {

Data Data::map() {
  Data result;
  result.value_ = Map{};
  return result;
}

Data Data::list() { return list_of({}); }

Data Data::list_of(List items) {
  Data result;
  result.value_ = std::move(items);
  return result;
}

Data& Data::set(std::string key, Data value) {
  std::get<Map>(value_).push_back({std::move(key), std::move(value)});
  return *this;
}

Data& Data::set_at(std::string_view dotted, Data value) {
  const std::size_t dot = dotted.find('.');
  if (dot == std::string_view::npos) return set(std::string(dotted), std::move(value));
  const std::string_view first = dotted.substr(0, dot);
  auto& entries = std::get<Map>(value_);
  auto found =
      std::find_if(entries.begin(), entries.end(), [&](const DataEntry& e) { return e.key == first; });
  if (found == entries.end()) found = entries.insert(found, {std::string(first), map()});
  found->value.set_at(dotted.substr(dot + 1), std::move(value));
  return *this;
}

Data& Data::add(Data value) {
  std::get<List>(value_).push_back(std::move(value));
  return *this;
}

const Data* Data::find(std::string_view dotted) const {
  const auto* entries = as<Map>();
  if (entries == nullptr) return nullptr;
  const std::size_t dot = dotted.find('.');
  for (const DataEntry& entry : *entries) {
    if (entry.key != dotted.substr(0, dot)) continue;
    return dot == std::string_view::npos ? &entry.value : entry.value.find(dotted.substr(dot + 1));
  }
  return nullptr;
}

double number_of(const Data& data) {
  if (const auto* integer = data.as<std::int64_t>()) return static_cast<double>(*integer);
  const auto* real = data.as<double>();
  return real == nullptr ? 0 : *real;
}

double number_at(const Data& data, std::string_view dotted) {
  const Data* found = data.find(dotted);
  return found == nullptr ? 0 : number_of(*found);
}

std::string text_at(const Data& data, std::string_view dotted) {
  const Data* found = data.find(dotted);
  const auto* text = found == nullptr ? nullptr : found->as<std::string>();
  return text == nullptr ? std::string() : *text;
}

const Data::List& list_at(const Data& data, std::string_view dotted) {
  static const Data::List none;
  const Data* found = data.find(dotted);
  const auto* list = found == nullptr ? nullptr : found->as<Data::List>();
  return list == nullptr ? none : *list;
}

Data texts_data(const std::vector<std::string>& texts) {
  Data list = Data::list();
  for (const std::string& text : texts) list.add(text);
  return list;
}

}  // namespace zeroplan::reports
