#include <fmt/format.h>

#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "planner/describe/text/document.hpp"
#include "planner/describe/text/document_builder.hpp"

namespace zeroplan::describe {
namespace {

struct Progress {
  int line = 1;
  bool line_feed = false;  // the byte read last: a number is known to end only when the byte after it is read
};

// The one pass over the text that nlohmann's parser makes, counting lines.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* position, Progress* progress) : position_(position), progress_(progress) {}

  reference operator*() const { return *position_; }
  CountingIterator& operator++() {
    if (progress_->line_feed) ++progress_->line;
    progress_->line_feed = *position_ == '\n';
    ++position_;
    return *this;
  }
  CountingIterator operator++(int) {
    const CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return position_ == other.position_; }
  bool operator!=(const CountingIterator& other) const { return !(*this == other); }

 private:
  const char* position_;
  Progress* progress_;
};

class TreeHandler {
 public:
  TreeHandler(DocumentBuilder& builder, const Progress& progress, std::string_view text)
      : builder_(builder), progress_(progress), text_(text) {}

  bool null() { return builder_.null(progress_.line), true; }
  bool boolean(bool value) { return plain(value ? "true" : "false"); }
  bool number_integer(std::int64_t value) { return plain(fmt::to_string(value)); }
  bool number_unsigned(std::uint64_t value) { return plain(fmt::to_string(value)); }
  bool number_float(double, const std::string& written) { return plain(written); }
  bool string(std::string& value) {
    builder_.scalar(std::move(value), true, progress_.line);
    return true;
  }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool start_object(std::size_t) { return builder_.open(Value::Kind::map, progress_.line), true; }
  bool end_object() { return builder_.close(), true; }
  bool start_array(std::size_t) { return builder_.open(Value::Kind::list, progress_.line), true; }
  bool end_array() { return builder_.close(), true; }
  bool key(std::string& text) {
    builder_.key(std::move(text), progress_.line);
    return true;
  }

  bool parse_error(std::size_t, const std::string& last_token, const nlohmann::detail::exception& error) {
    const std::size_t last = text_.find_last_not_of(" \t\r\n");
    if (last == std::string_view::npos) builder_.fail(1, "found no text, expected JSON");
    if (ends_early(error)) {
      builder_.fail(line_at(last), "the text ends too early, expected the rest of the JSON");
    }
    builder_.fail(progress_.line, fmt::format("found {} where it is not JSON: {}",
                                              zeroplan::quoted(last_token), reason(error)));
  }

 private:
  bool plain(std::string text) {
    builder_.scalar(std::move(text), false, progress_.line);
    return true;
  }

  int line_at(std::size_t byte) const {
    int line = 1;
    for (const char c : text_.substr(0, byte)) line += c == '\n' ? 1 : 0;
    return line;
  }

  // nlohmann tells the end of the text apart only in its wording.
  static bool ends_early(const nlohmann::detail::exception& error) {
    const std::string_view what = error.what();
    return what.find("unexpected end of input") != std::string_view::npos ||
           what.find("missing closing quote") != std::string_view::npos;
  }

  // What nlohmann says, without its "[json.exception...] parse error at line 1, column 2: " in front.
  static std::string reason(const nlohmann::detail::exception& error) {
    std::string_view what = error.what();
    for (const std::string_view start : {"syntax error ", "number overflow "}) {
      const std::size_t found = what.find(start);
      if (found != std::string_view::npos) return std::string(what.substr(found));
    }
    return std::string(what);
  }

  DocumentBuilder& builder_;
  const Progress& progress_;
  std::string_view text_;
};

}  // namespace

Document parse_json(std::string_view text, std::string source) {
  const std::string_view checked = checked_text(text, kMaximumTextBytes, source);
  DocumentBuilder builder(std::move(source));
  Progress progress;
  TreeHandler handler(builder, progress, checked);
  const char* begin = checked.data();
  nlohmann::json::sax_parse(CountingIterator(begin, &progress),
                            CountingIterator(begin + checked.size(), &progress), &handler);
  return builder.finish();
}

}  // namespace zeroplan::describe
