#include "executor/machine/system_files.hpp"

#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

namespace zeroplan::executor {

namespace {

std::string trimmed(const std::string& text) {
  constexpr const char* kBlanks = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace

std::optional<std::string> whole_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  // Some files open and then refuse to be read, such as the speed of an interface that is down.
  if (file.bad()) return std::nullopt;
  return text;
}

std::optional<std::string> first_line(const std::filesystem::path& path) {
  const std::optional<std::string> text = whole_file(path);
  if (!text || text->empty()) return std::nullopt;
  return trimmed(text->substr(0, text->find('\n')));
}

std::optional<std::int64_t> leading_number(const std::string& text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

std::optional<std::int64_t> number_in(const std::filesystem::path& path) {
  const std::optional<std::string> line = first_line(path);
  return line ? leading_number(*line) : std::nullopt;
}

std::optional<std::string> value_of(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos && trimmed(line.substr(0, colon)) == key) {
      return trimmed(line.substr(colon + 1));
    }
  }
  return std::nullopt;
}

}  // namespace zeroplan::executor
