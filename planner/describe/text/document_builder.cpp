#include "planner/describe/text/document_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "planner/utf8.hpp"

namespace zeroplan::describe {
namespace {

constexpr std::size_t kMaximumDuplicatesTold = 20;

}  // namespace

std::string_view checked_text(std::string_view text, std::size_t limit, const std::string& source) {
  if (text.size() > limit) {
    throw ConfigurationError(
        {source, 0, "",
         fmt::format("found {} bytes of text, expected at most {} MiB", text.size(), limit >> 20)});
  }
  int line = 1;
  const auto refuse = [&](std::string message) {
    throw ConfigurationError({source, line, "", std::move(message)});
  };
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    refuse("found UTF-16 or UTF-32 text, expected UTF-8");
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint next = decode_utf8(text, i);
    if (next.bytes == 0) {
      refuse(fmt::format("found byte 0x{:02x}, which is not UTF-8; expected UTF-8 text",
                         static_cast<unsigned char>(text[i])));
    }
    if (next.value == 0) refuse("found a NUL byte, expected UTF-8 text");
    const bool line_end = next.value == '\r' && i + 1 < text.size() && text[i + 1] == '\n';
    if (next.value == '\r' && !line_end) refuse("found a carriage return without a line feed after it");
    const bool control =
        next.value < 0x20 || (next.value >= 0x7F && next.value < 0xA0) || next.value == 0xFEFF;
    if (control && next.value != '\t' && next.value != '\n' && !line_end) {
      refuse(fmt::format("found the control character U+{:04X}, expected plain text",
                         static_cast<unsigned>(next.value)));
    }
    if (next.value == '\n') ++line;
    i += next.bytes;
  }
  return text;
}

bool DocumentBuilder::expects_key() const {
  return !frames_.empty() && frames_.back().value.kind == Value::Kind::map && !frames_.back().has_key;
}

void DocumentBuilder::open(Value::Kind kind, int line) {
  if (frames_.size() == kMaximumNesting) {
    fail(line, fmt::format("found nesting deeper than {}, expected at most {} levels of lists and maps",
                           kMaximumNesting, kMaximumNesting));
  }
  Frame frame;
  frame.value.kind = kind;
  frame.value.line = line;
  ++values_;
  frames_.push_back(std::move(frame));
}

void DocumentBuilder::close() {
  Value value = std::move(frames_.back().value);
  frames_.pop_back();
  place(std::move(value));
}

void DocumentBuilder::key(std::string text, int line) {
  Frame& frame = frames_.back();
  frame.duplicate = !frame.keys.insert(text).second;
  frame.key = std::move(text);
  frame.key_line = line;
  frame.has_key = true;
  if (!frame.duplicate) return;
  if (problems_.list().size() >= kMaximumDuplicatesTold) fail(line, "found more duplicate keys");
  const auto first = std::find_if(frame.value.entries.begin(), frame.value.entries.end(),
                                  [&](const Entry& entry) { return entry.key == frame.key; });
  problems_.add({source_, line, path(),
                 fmt::format("found the key a second time (first on line {}), expected each key once",
                             first == frame.value.entries.end() ? frame.value.line : first->line)});
}

void DocumentBuilder::scalar(std::string text, bool quoted, int line) {
  Value value;
  value.kind = Value::Kind::scalar;
  value.line = line;
  value.text = std::move(text);
  value.quoted = quoted;
  ++values_;
  place(std::move(value));
}

void DocumentBuilder::null(int line) {
  Value value;
  value.line = line;
  ++values_;
  place(std::move(value));
}

void DocumentBuilder::place(Value value) {
  if (values_ > kMaximumValues) {
    fail(value.line, fmt::format("found more than {} values, expected a description", kMaximumValues));
  }
  if (frames_.empty()) {
    root_ = std::move(value);
    return;
  }
  Frame& frame = frames_.back();
  if (frame.value.kind == Value::Kind::list) {
    frame.value.items.push_back(std::move(value));
    return;
  }
  frame.has_key = false;
  if (!frame.duplicate) {
    frame.value.entries.push_back({std::move(frame.key), frame.key_line, std::move(value)});
  }
}

std::string DocumentBuilder::path() const {
  std::string result;
  for (const Frame& frame : frames_) {
    if (frame.value.kind == Value::Kind::list) {
      result += fmt::format("[{}]", frame.value.items.size());
    } else if (frame.has_key) {
      if (!result.empty()) result += '.';
      result += frame.key;
    }
  }
  return result;
}

void DocumentBuilder::fail(int line, std::string message) {
  problems_.add({source_, line, path(), std::move(message)});
  throw ConfigurationError(problems_.list());
}

Document DocumentBuilder::finish() {
  problems_.throw_if_any();
  if (root_.kind == Value::Kind::null) root_.line = 1;
  return {std::move(source_), std::move(root_)};
}

}  // namespace zeroplan::describe
