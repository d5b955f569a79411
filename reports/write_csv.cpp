#include <algorithm>
#include <optional>

#include "reports/numbers.hpp"
#include "reports/writers.hpp"

namespace zeroplan::reports {
namespace {

struct Field {
  std::string key;
  std::string text;
};

std::string scalar_text(const Data& data) {
  if (const auto* text = data.as<std::string>()) return *text;
  if (const auto* integer = data.as<std::int64_t>()) return std::to_string(*integer);
  if (const auto* real = data.as<double>()) return shortest(*real);
  if (const auto* boolean = data.as<bool>()) return *boolean ? "true" : "false";
  return {};
}

// The items of a list that holds texts only, as one field; nothing for any other list.
std::optional<std::string> joined_texts(const Data& data) {
  const auto* items = data.as<Data::List>();
  if (items == nullptr) return std::nullopt;
  std::string text;
  for (const Data& item : *items) {
    if (item.as<std::string>() == nullptr) return std::nullopt;
    text += (text.empty() ? "" : " | ") + *item.as<std::string>();
  }
  return text;
}

void flatten(const Data::Map& entries, const std::string& prefix, std::vector<Field>& fields) {
  for (const DataEntry& entry : entries) {
    const std::string key = prefix.empty() ? entry.key : prefix + '.' + entry.key;
    if (const auto* inner = entry.value.as<Data::Map>()) {
      flatten(*inner, key, fields);
    } else if (entry.key == "notes" && entry.value.as<Data::List>() != nullptr) {
      fields.push_back({key, joined_texts(entry.value).value_or("")});
    } else if (entry.value.as<Data::List>() == nullptr) {
      fields.push_back({key, scalar_text(entry.value)});
    }
  }
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"') result += '"';
    result += c;
  }
  return result + '"';
}

std::string csv_line(const std::vector<std::string>& fields) {
  std::string line;
  for (const std::string& field : fields) {
    if (&field != fields.data()) line += ',';
    line += csv_field(field);
  }
  return line + '\n';
}

}  // namespace

std::string write_csv(const Data& data, std::string_view rows) {
  std::vector<std::vector<Field>> lines;
  const Data* list = rows.empty() ? nullptr : data.find(rows);
  if (list != nullptr && list->as<Data::List>() != nullptr) {
    for (const Data& row : *list->as<Data::List>()) {
      if (const auto* entries = row.as<Data::Map>()) flatten(*entries, "", lines.emplace_back());
    }
    // What the whole answer notes goes with every row of it.
    const Data* notes = data.find("notes");
    const std::optional<std::string> text = notes == nullptr ? std::nullopt : joined_texts(*notes);
    for (std::vector<Field>& line : lines) {
      if (text) line.push_back({"notes", *text});
    }
  } else if (const auto* entries = data.as<Data::Map>()) {
    flatten(*entries, "", lines.emplace_back());
  }
  std::vector<std::string> header;
  for (const std::vector<Field>& line : lines) {
    for (const Field& field : line) {
      if (std::find(header.begin(), header.end(), field.key) == header.end()) header.push_back(field.key);
    }
  }
  std::string text = csv_line(header);
  for (const std::vector<Field>& line : lines) {
    std::vector<std::string> fields;
    for (const std::string& key : header) {
      const auto found =
          std::find_if(line.begin(), line.end(), [&](const Field& field) { return field.key == key; });
      fields.push_back(found == line.end() ? "" : found->text);
    }
    text += csv_line(fields);
  }
  return text;
}

}  // namespace zeroplan::reports
