#include <nlohmann/json.hpp>

#include "reports/writers.hpp"

namespace zeroplan::reports {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Data& data) {
  if (const auto* boolean = data.as<bool>()) return *boolean;
  if (const auto* integer = data.as<std::int64_t>()) return *integer;
  if (const auto* real = data.as<double>()) return *real;
  if (const auto* text = data.as<std::string>()) return *text;
  if (const auto* items = data.as<Data::List>()) {
    Json list = Json::array();
    for (const Data& item : *items) list.push_back(json_of(item));
    return list;
  }
  if (const auto* entries = data.as<Data::Map>()) {
    Json map = Json::object();
    for (const DataEntry& entry : *entries) map.emplace(entry.key, json_of(entry.value));
    return map;
  }
  return nullptr;
}

}  // namespace

std::string write_json(const Data& data, bool one_line) {
  constexpr int kIndentation = 2, kOneLine = -1;
  return json_of(data).dump(one_line ? kOneLine : kIndentation, ' ', false, Json::error_handler_t::replace) +
         '\n';
}

}  // namespace zeroplan::reports
