#include "executor/storage/new_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "planner/error.hpp"

namespace zeroplan::executor {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPartial = ".partial";
constexpr std::size_t kDigits = 16;

[[noreturn]] void fail(const std::string& path, std::string_view what, const std::string& why) {
  throw FileError(fmt::format("{} cannot be {}: {}", zeroplan::quoted(path), what, why), why);
}

std::string last_error() { return std::strerror(errno); }

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

std::string_view kind_of(fs::file_type type) {
  switch (type) {
    case fs::file_type::directory:
      return "it is a folder";
    case fs::file_type::character:
    case fs::file_type::block:
      return "it is a device, not a file";
    case fs::file_type::fifo:
      return "it is a pipe, not a file";
    case fs::file_type::socket:
      return "it is a socket, not a file";
    default:
      return "it is no ordinary file";
  }
}

bool is_locked_by_us(const File& file) {
  if (::flock(file.descriptor(), LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK;  // no locks here
  // Whoever found it unlocked before us has removed it.
  struct stat here {};
  return ::fstat(file.descriptor(), &here) == 0 && here.st_nlink > 0;
}

bool is_partial_of(std::string_view name, std::string_view target) {
  if (name.size() != target.size() + 1 + kDigits + kPartial.size()) return false;
  if (!name.starts_with(target) || !name.ends_with(kPartial) || name[target.size()] != '.') return false;
  const std::string_view digits = name.substr(target.size() + 1, kDigits);
  return digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Removes the unfinished files of `target` whose writers have ended: nobody holds their locks.
void remove_abandoned(const std::string& target) {
  std::error_code error;
  const std::string name = fs::path(target).filename().string();
  for (fs::directory_iterator entry(folder_of(target), error), end; !error && entry != end;
       entry.increment(error)) {
    if (!is_partial_of(entry->path().filename().string(), name)) continue;
    const int other = ::open(entry->path().c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (other < 0) continue;
    if (::flock(other, LOCK_EX | LOCK_NB) == 0) ::unlink(entry->path().c_str());
    ::close(other);
  }
}

std::string target_of(const std::string& path) {
  if (const std::optional<std::string> why = why_not_replaceable(path)) fail(path, "written", *why);
  std::error_code error;
  return fs::is_symlink(path, error) ? fs::canonical(path).string() : path;
}

}  // namespace

File::File(std::string path, int flags)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), flags | O_CLOEXEC, 0666)) {
  const bool writes = (flags & (O_WRONLY | O_RDWR)) != 0;
  if (descriptor_ < 0) fail(path_, writes ? "written" : "read", last_error());
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

Bytes File::size() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) fail(path_, "read", last_error());
  return status.st_size;
}

void File::resize(Bytes bytes) const {
  if (::ftruncate(descriptor_, bytes) != 0) fail(path_, "written", last_error());
}

void File::write(Bytes at, const void* from, Bytes bytes) const {
  const char* data = static_cast<const char*>(from);
  for (Bytes done = 0; done < bytes;) {
    const ssize_t moved =
        ::pwrite(descriptor_, data + done, static_cast<std::size_t>(bytes - done), at + done);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) fail(path_, "written", last_error());
    done += moved;
  }
}

void File::sync() const {
  // EINVAL: this file system has nothing to wait for.
  if (::fsync(descriptor_) != 0 && errno != EINVAL) fail(path_, "written", last_error());
}

std::optional<std::string> why_not_replaceable(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  fs::path target = path;
  if (fs::exists(status)) {
    if (!fs::is_regular_file(status)) return std::string(kind_of(status.type()));
    if (::access(path.c_str(), W_OK) != 0) return last_error();
    if (fs::is_symlink(path, error)) target = fs::canonical(path, error);
  } else if (fs::is_symlink(path, error)) {
    return "it is a link to what is not there";
  }
  const fs::path folder = folder_of(target);
  if (::access(folder.c_str(), W_OK) != 0) return fmt::format("{}: {}", folder.string(), last_error());
  return std::nullopt;
}

NewFile::NewFile(const std::string& path) : target_(target_of(path)) {
  remove_abandoned(target_);
  std::random_device random;
  while (!installed_) {
    const std::uint64_t token = std::uint64_t{random()} << 32 | random();
    const std::string name = fmt::format("{}.{:016x}{}", target_, token, kPartial);
    file_.emplace(File(name, O_RDWR | O_CREAT | O_EXCL));
    if (is_locked_by_us(*file_)) return;
    file_.reset();
    ::unlink(name.c_str());
  }
}

NewFile::~NewFile() {
  if (!installed_ && file_) ::unlink(file_->path().c_str());
}

void NewFile::install(const std::string& also) {
  file_->sync();
  if (const std::optional<std::string> why = why_not_replaceable(target_)) fail(target_, "written", *why);
  if (!also.empty()) {
    const std::string second = target_ + also;
    ::unlink(second.c_str());
    if (::link(file_->path().c_str(), second.c_str()) != 0) fail(second, "written", last_error());
  }
  if (std::rename(file_->path().c_str(), target_.c_str()) != 0) fail(target_, "written", last_error());
  installed_ = true;
  // The new name is in the folder, which is written on its own.
  File(folder_of(target_).string(), O_RDONLY | O_DIRECTORY).sync();
}

}  // namespace zeroplan::executor
