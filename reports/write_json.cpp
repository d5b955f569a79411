#include <fmt/format.h>

#include "planner/utf8.hpp"
#include "reports/numbers.hpp"
#include "reports/writers.hpp"

namespace zeroplan::reports {
namespace {

struct JsonWriter {
  bool one_line = false;
  std::string text;

  void new_line(std::size_t depth) {
    if (!one_line) text += '\n' + std::string(2 * depth, ' ');
  }

  void value(const Data& data, std::size_t depth) {
    if (const auto* boolean = data.as<bool>()) {
      text += *boolean ? "true" : "false";
    } else if (const auto* integer = data.as<std::int64_t>()) {
      text += std::to_string(*integer);
    } else if (const auto* real = data.as<double>()) {
      text += shortest(*real);
    } else if (const auto* string = data.as<std::string>()) {
      text += json_string(*string);
    } else if (const auto* items = data.as<Data::List>()) {
      list(*items, depth);
    } else if (const auto* entries = data.as<Data::Map>()) {
      map(*entries, depth);
    } else {
      text += "null";
    }
  }

  void list(const Data::List& items, std::size_t depth) {
    text += '[';
    for (const Data& item : items) {
      if (&item != items.data()) text += one_line ? ", " : ",";
      new_line(depth + 1);
      value(item, depth + 1);
    }
    if (!items.empty()) new_line(depth);
    text += ']';
  }

  void map(const Data::Map& entries, std::size_t depth) {
    text += '{';
    for (const DataEntry& entry : entries) {
      if (&entry != entries.data()) text += one_line ? ", " : ",";
      new_line(depth + 1);
      text += json_string(entry.key) + ": ";
      value(entry.value, depth + 1);
    }
    if (!entries.empty()) new_line(depth);
    text += '}';
  }
};

}  // namespace

std::string json_string(std::string_view text) {
  std::string result = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    if (point.bytes == 0) {
      result += "\xEF\xBF\xBD";
      ++at;
      continue;
    }
    if (point.value == '"' || point.value == '\\') {
      result += '\\';
      result += static_cast<char>(point.value);
    } else if (point.value == '\n') {
      result += "\\n";
    } else if (point.value < 0x20 || point.value == 0x7f) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(point.value));
    } else {
      result += text.substr(at, point.bytes);
    }
    at += point.bytes;
  }
  return result + '"';
}

std::string write_json(const Data& data, bool one_line) {
  JsonWriter writer{one_line, {}};
  writer.value(data, 0);
  return writer.text + '\n';
}

}  // namespace zeroplan::reports
