#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "reports/numbers.hpp"
#include "reports/writers.hpp"

namespace zeroplan::reports {
namespace {

// Numbers and words stand on one line.
bool is_short_scalar(const Data& data) {
  const auto* text = data.as<std::string>();
  if (text != nullptr) return text->find(' ') == std::string::npos;
  return data.as<std::int64_t>() != nullptr || data.as<double>() != nullptr;
}

// As in JSON, of which YAML is a superset; numbers with a point, which YAML 1.1 needs to see a number.
std::string scalar_text(const Data& data) {
  if (const auto* real = data.as<double>()) return shortest(*real);
  std::string text = write_json(data, true);
  text.pop_back();  // the end of the line
  return text;
}

// Writes what stands after "key:" or "-": a scalar on the same line, or a block below, indented by `depth`.
void write_value(const Data& data, std::size_t depth, std::string& text);

void write_entries(const Data::Map& entries, std::size_t depth, bool first_in_place, std::string& text) {
  for (const DataEntry& entry : entries) {
    if (!(first_in_place && &entry == entries.data())) text += std::string(2 * depth, ' ');
    text += entry.key + ':';
    write_value(entry.value, depth + 1, text);
  }
}

void write_value(const Data& data, std::size_t depth, std::string& text) {
  if (const auto* entries = data.as<Data::Map>()) {
    if (entries->empty()) {
      text += " {}\n";
      return;
    }
    text += '\n';
    write_entries(*entries, depth, false, text);
  } else if (const auto* items = data.as<Data::List>()) {
    if (items->empty()) {
      text += " []\n";
      return;
    }
    if (std::all_of(items->begin(), items->end(), is_short_scalar)) {
      std::vector<std::string> scalars;
      std::transform(items->begin(), items->end(), std::back_inserter(scalars), scalar_text);
      text += fmt::format(" [{}]\n", fmt::join(scalars, ", "));
      return;
    }
    text += '\n';
    for (const Data& item : *items) {
      text += std::string(2 * depth, ' ') + '-';
      const auto* inner = item.as<Data::Map>();
      if (inner != nullptr && !inner->empty()) {
        text += ' ';
        write_entries(*inner, depth + 1, true, text);
      } else {
        write_value(item, depth + 1, text);
      }
    }
  } else {
    text += ' ' + scalar_text(data) + '\n';
  }
}

}  // namespace

std::string write_yaml(const Data& data) {
  std::string text;
  if (const auto* entries = data.as<Data::Map>()) write_entries(*entries, 0, false, text);
  return text;
}

}  // namespace zeroplan::reports
