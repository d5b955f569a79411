#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace zeroplan {

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 0;  // 0: the bytes are not UTF-8 (overlong, surrogate, cut short, beyond U+10FFFF)
};

// The code point that starts at `position`. Requires position < text.size().
CodePoint decode_utf8(std::string_view text, std::size_t position);

// Whether a terminal shows the code point and nothing else happens: no control, no invisible format
// character, no change of writing direction.
bool is_printable(char32_t code_point);

// `text` with everything unprintable as \n, \t or \xNN, and cut after `limit` characters, then marked with
// "...".
std::string printable(std::string_view text, std::size_t limit);

}  // namespace zeroplan
