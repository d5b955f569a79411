#include "tests/support/json_schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tests/support/command.hpp"

namespace zeroplan::test {
namespace {

using nlohmann::json;

bool has_type(const json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  return false;
}

bool has_one_type(const json& value, const json& types) {
  if (types.is_string()) return has_type(value, types.get<std::string>());
  return std::any_of(types.begin(), types.end(),
                     [&](const json& type) { return has_type(value, type.get<std::string>()); });
}

void append(std::vector<std::string>& all, std::vector<std::string> more) {
  all.insert(all.end(), more.begin(), more.end());
}

std::vector<std::string> object_violations(const json& schema, const json& value,
                                           const std::string& pointer) {
  std::vector<std::string> found;
  for (const json& key : schema.value("required", json::array())) {
    if (!value.contains(key.get<std::string>()))
      found.push_back(fmt::format("{}: missing {}", pointer, key.get<std::string>()));
  }
  const json properties = schema.value("properties", json::object());
  for (const auto& [key, inner] : value.items()) {
    if (properties.contains(key)) {
      append(found, schema_violations(properties[key], inner, fmt::format("{}/{}", pointer, key)));
    } else if (!schema.value("additionalProperties", true)) {
      found.push_back(fmt::format("{}: unexpected {}", pointer, key));
    }
  }
  return found;
}

}  // namespace

std::vector<std::string> schema_violations(const json& schema, const json& value,
                                           const std::string& pointer) {
  if (schema.contains("$ref")) {
    const std::string place = schema["$ref"];
    const std::size_t hash = place.find('#');
    const json other = json::parse(read_file(ZEROPLAN_SOURCE "/docs/schema/" + place.substr(0, hash)));
    return schema_violations(other.at(json::json_pointer(place.substr(hash + 1))), value, pointer);
  }
  static const std::set<std::string> known{
      "$schema",    "$id",   "title",   "description",         "type", "enum", "required",
      "properties", "items", "minimum", "additionalProperties"};
  std::vector<std::string> found;
  for (const auto& [keyword, ignored] : schema.items()) {
    if (!known.contains(keyword)) found.push_back(fmt::format("{}: the schema uses {}", pointer, keyword));
  }
  if (schema.contains("type") && !has_one_type(value, schema["type"])) {
    found.push_back(pointer + ": " + value.dump() + " is not of type " + schema["type"].dump());
    return found;
  }
  if (schema.contains("enum") &&
      std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end()) {
    found.push_back(pointer + ": " + value.dump() + " is not one of " + schema["enum"].dump());
  }
  if (schema.contains("minimum") && value.is_number() && value < schema["minimum"]) {
    found.push_back(pointer + ": " + value.dump() + " is below " + schema["minimum"].dump());
  }
  if (value.is_object()) append(found, object_violations(schema, value, pointer));
  if (value.is_array() && schema.contains("items")) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      append(found, schema_violations(schema["items"], value[i], pointer + '/' + std::to_string(i)));
    }
  }
  return found;
}

}  // namespace zeroplan::test
