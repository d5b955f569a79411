#include "reports/data.hpp"

namespace zeroplan::reports {

Data Data::map() {
  Data result;
  result.value_ = Map{};
  return result;
}

Data Data::list() {
  Data result;
  result.value_ = List{};
  return result;
}

Data& Data::set(std::string key, Data value) {
  std::get<Map>(value_).push_back({std::move(key), std::move(value)});
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

Data texts_data(const std::vector<std::string>& texts) {
  Data list = Data::list();
  for (const std::string& text : texts) list.add(text);
  return list;
}

}  // namespace zeroplan::reports
