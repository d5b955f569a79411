#include "planner/utf8.hpp"

#include <fmt/format.h>

namespace zeroplan {

CodePoint decode_utf8(std::string_view text, std::size_t position) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(position);
  if (first < 0x80) return {first, 1};
  std::size_t length = 0;
  char32_t value = 0;
  char32_t smallest = 0;  // a shorter form would have done below this
  if ((first & 0xE0U) == 0xC0U) {
    length = 2, value = first & 0x1FU, smallest = 0x80;
  } else if ((first & 0xF0U) == 0xE0U) {
    length = 3, value = first & 0x0FU, smallest = 0x800;
  } else if ((first & 0xF8U) == 0xF0U) {
    length = 4, value = first & 0x07U, smallest = 0x10000;
  } else {
    return {};
  }
  if (text.size() - position < length) return {};
  for (std::size_t i = 1; i < length; ++i) {
    const unsigned char next = byte(position + i);
    if ((next & 0xC0U) != 0x80U) return {};
    value = (value << 6U) | (next & 0x3FU);
  }
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < smallest || value > 0x10FFFF || surrogate) return {};
  return {value, length};
}

bool is_printable(char32_t code_point) {
  const auto within = [&](char32_t first, char32_t last) {
    return first <= code_point && code_point <= last;
  };
  return !(within(0, 0x1F) || within(0x7F, 0x9F) || code_point == 0xAD || code_point == 0x61C ||
           within(0x200B, 0x200F) || within(0x2028, 0x202E) || within(0x2060, 0x206F) ||
           code_point == 0xFEFF || within(0xFFF0, 0xFFFB) || within(0xE0000, 0xE0FFF));
}

std::string printable(std::string_view text, std::size_t limit) {
  std::string result;
  std::size_t shown = 0;
  for (std::size_t i = 0; i < text.size(); ++shown) {
    if (shown == limit) return result + "...";
    const CodePoint next = decode_utf8(text, i);
    const std::size_t bytes = next.bytes == 0 ? 1 : next.bytes;
    if (next.bytes != 0 && is_printable(next.value)) {
      result += text.substr(i, bytes);
    } else if (text[i] == '\n') {
      result += "\\n";
    } else if (text[i] == '\t') {
      result += "\\t";
    } else {
      for (const char c : text.substr(i, bytes))
        result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
    i += bytes;
  }
  return result;
}

}  // namespace zeroplan
