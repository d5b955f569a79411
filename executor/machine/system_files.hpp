#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

// Files of /proc and /sys: a line each, or "key: value" lines. What cannot be read is absent.
namespace zeroplan::executor {

// All of it; files of /proc and /sys state no size, so they are read to their end.
std::optional<std::string> whole_file(const std::filesystem::path& path);
// The first line, without blanks around it.
std::optional<std::string> first_line(const std::filesystem::path& path);
// The number that a text or a file's first line begins with.
std::optional<std::int64_t> leading_number(const std::string& text);
std::optional<std::int64_t> number_in(const std::filesystem::path& path);
// What stands behind "key" and a colon in the first such line.
std::optional<std::string> value_of(const std::string& text, const std::string& key);

}  // namespace zeroplan::executor
