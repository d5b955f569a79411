#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "planner/describe/text/document.hpp"
#include "planner/describe/text/document_builder.hpp"

namespace zeroplan::describe {

std::string read_text_file(const std::string& path) {
  const auto refuse = [&](std::string message) -> ConfigurationError {
    return ConfigurationError({path, 0, "", std::move(message)});
  };
  if (path.empty()) throw refuse("found an empty file name");
  if (path.find('\0') != std::string::npos) throw refuse("found a NUL byte in a file name");

  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) throw refuse("there is no such file");
  if (error) throw refuse(fmt::format("cannot be read: {}", error.message()));
  if (fs::is_directory(status)) throw refuse("found a folder, expected a file");
  if (!fs::is_regular_file(status)) throw refuse("found a device, pipe or socket, expected a file");

  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw refuse(fmt::format("cannot be read: {}", std::generic_category().message(errno)));
  std::string text;
  std::array<char, 65536> chunk{};
  while (file && text.size() <= kMaximumTextBytes) {
    file.read(chunk.data(), chunk.size());
    text.append(chunk.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (file.bad()) throw refuse("cannot be read: input error");
  if (text.size() > kMaximumTextBytes) {
    throw refuse(
        fmt::format("found a file larger than {} MiB, expected a description", kMaximumTextBytes >> 20));
  }
  return text;
}

}  // namespace zeroplan::describe
