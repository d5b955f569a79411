#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "planner/describe/text/document.hpp"

// What the YAML and the JSON reader have in common: the refusals, and the tree made of the parser's events.
namespace zeroplan::describe {

inline constexpr std::size_t kMaximumTextBytes = std::size_t{16} << 20;
inline constexpr std::size_t kMaximumYamlBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaximumNesting = 64;
inline constexpr std::size_t kMaximumValues = 200'000;

// `text` without a UTF-8 byte order mark. Throws ConfigurationError for text above `limit` bytes, text in
// another encoding, and control characters other than tab, line feed and a carriage return before a line
// feed.
std::string_view checked_text(std::string_view text, std::size_t limit, const std::string& source);

class DocumentBuilder {
 public:
  explicit DocumentBuilder(std::string source) : source_(std::move(source)) {}

  void open(Value::Kind kind, int line);  // list or map
  void close();
  void key(std::string text, int line);
  void scalar(std::string text, bool quoted, int line);
  void null(int line);

  // Whether the next event must be a map's key.
  bool expects_key() const;
  bool empty() const { return values_ == 0; }

  // Throws ConfigurationError at once, with the problems met before.
  [[noreturn]] void fail(int line, std::string message);

  // Throws ConfigurationError when a problem was met.
  Document finish();

 private:
  struct Frame {
    Value value;
    std::unordered_set<std::string> keys;
    std::string key;
    int key_line = 0;
    bool has_key = false;
    bool duplicate = false;  // the value that follows is dropped
  };

  void place(Value value);
  std::string path() const;

  std::string source_;
  std::vector<Frame> frames_;
  Value root_;
  std::size_t values_ = 0;
  Problems problems_;
};

}  // namespace zeroplan::describe
