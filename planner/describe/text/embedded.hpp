#pragma once

#include <span>
#include <string_view>

namespace zeroplan::describe {

// One description that ships with the program: its text is compiled in (cmake/embed.cmake).
struct EmbeddedFile {
  std::string_view name;  // file name without folder and extension: what a user types
  std::string_view path;  // path in the source tree, for error messages
  std::string_view text;
};

// Sorted by path.
std::span<const EmbeddedFile> embedded_models();
std::span<const EmbeddedFile> embedded_hardware();
std::span<const EmbeddedFile> embedded_architectures();
std::span<const EmbeddedFile> embedded_engines();
std::span<const EmbeddedFile> embedded_optimizers();
std::span<const EmbeddedFile> embedded_pace();  // one file

}  // namespace zeroplan::describe
