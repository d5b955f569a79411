#include "cli/output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "planner/error.hpp"

namespace zeroplan::cli {
namespace {

struct Refused {
  std::string path, why;
};

[[noreturn]] void refuse(const std::string& path, const std::string& why) { throw Refused{path, why}; }

class FileDescriptor {
 public:
  FileDescriptor(const std::string& path, int flags)
      : number_(::open(path.c_str(), flags | O_WRONLY | O_CLOEXEC, 0666)) {}
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

  // A full disk may be told only here.
  bool close() {
    const int result = ::close(number_);
    number_ = -1;
    return result == 0;
  }

 private:
  int number_;
};

std::string last_error() { return std::strerror(errno); }

void write_directly(const std::string& path, std::string_view text) {
  FileDescriptor file(path, 0);
  if (!file.is_open() || !file.write_all(text)) refuse(path, last_error());
}

void replace_file(const std::string& path, std::string_view text) {
  const std::string beside = fmt::format("{}.{}.tmp", path, ::getpid());
  FileDescriptor file(beside, O_CREAT | O_EXCL);
  if (!file.is_open()) refuse(path, last_error());
  if (!file.write_all(text) || !file.close() || std::rename(beside.c_str(), path.c_str()) != 0) {
    const std::string why = last_error();
    ::unlink(beside.c_str());
    refuse(path, why);
  }
}

void write_or_refuse(const std::string& path, std::string_view text) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) refuse(path, "it is a folder");
  if (!fs::exists(status)) return replace_file(path, text);
  if (::access(path.c_str(), W_OK) != 0) refuse(path, last_error());
  if (!fs::is_regular_file(status)) return write_directly(path, text);
  // A link stays a link to what is replaced.
  const fs::path target = fs::canonical(path, error);
  if (error) refuse(path, error.message());
  replace_file(target.string(), text);
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

}  // namespace zeroplan::cli
