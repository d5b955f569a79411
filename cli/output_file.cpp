#include "cli/output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "executor/storage/new_file.hpp"
#include "planner/error.hpp"

namespace zeroplan::cli {
namespace {

struct Refused {
  std::string path, why;
};

[[noreturn]] void refuse(const std::string& path, const std::string& why) { throw Refused{path, why}; }

class FileDescriptor {
 public:
  explicit FileDescriptor(const std::string& path) : number_(::open(path.c_str(), O_WRONLY | O_CLOEXEC)) {}
  ~FileDescriptor() {
    if (number_ >= 0) ::close(number_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  bool is_open() const { return number_ >= 0; }

  bool write_all(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t written = ::write(number_, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return false;
      text.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
  }

 private:
  int number_;
};

std::string last_error() { return std::strerror(errno); }

void write_directly(const std::string& path, std::string_view text) {
  FileDescriptor file(path);
  if (!file.is_open() || !file.write_all(text)) refuse(path, last_error());
}

void replace_file(const std::string& path, std::string_view text) {
  try {
    executor::NewFile file(path);
    file.file().write(0, text.data(), static_cast<Bytes>(text.size()));
    file.install();
  } catch (const executor::FileError& error) {
    refuse(path, error.why());
  }
}

void write_or_refuse(const std::string& path, std::string_view text) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) refuse(path, "it is a folder");
  if (fs::exists(status) && !fs::is_regular_file(status)) return write_directly(path, text);
  replace_file(path, text);
}

}  // namespace

void write_whole_file(const std::string& path, std::string_view text, const std::string& option) {
  try {
    write_or_refuse(path, text);
  } catch (const Refused& refused) {
    throw ConfigurationError(Problem{
        option, 0, "", fmt::format("{} cannot be written: {}", zeroplan::quoted(refused.path), refused.why)});
  }
}

void give_text(const Request& request, std::string_view text) {
  if (!request.out.empty()) return write_whole_file(request.out, text);
  if (!(*request.answers << text << std::flush))
    throw ConfigurationError(Problem{"standard output", 0, "", "cannot be written"});
}

Answer plain_answer(const Request& request, std::string_view text) {
  if (!request.quiet) give_text(request, text);
  return {{}, kYes, true};
}

}  // namespace zeroplan::cli
