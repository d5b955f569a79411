#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "planner/units.hpp"

namespace zeroplan::executor {

// A file could not be written or read: the message says which and why, `why` alone the reason.
class FileError : public std::runtime_error {
 public:
  FileError(const std::string& message, std::string why)
      : std::runtime_error(message), why_(std::move(why)) {}
  const std::string& why() const { return why_; }

 private:
  std::string why_;
};

// An open file. Reads and writes are whole or throw FileError; interrupted calls go on.
class File {
 public:
  // `flags` and `path` as open(2) takes them.
  File(std::string path, int flags);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;

  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  Bytes size() const;
  void resize(Bytes bytes) const;
  void write(Bytes at, const void* from, Bytes bytes) const;
  // On the disk, not only in the system's memory. A full disk may be told only here.
  void sync() const;

 private:
  std::string path_;
  int descriptor_;
};

// Why nothing could be written under `path`: it is a folder, a device or a pipe, a link to nothing, or its
// folder cannot be written. A device is never replaced by a file.
std::optional<std::string> why_not_replaceable(const std::string& path);

// A file that takes its place under a name when it is complete: whole or not at all, whoever else writes to
// that name at the same time and whenever the process is ended.
//
// Until then it is `<target>.<16 hexadecimal digits>.partial`, made for this object alone and locked. The lock
// ends with the process, so a new file first removes the unlocked ones beside it: those whose writer died.
class NewFile {
 public:
  // Throws FileError when the name cannot be taken (why_not_replaceable) or the folder refuses the file. A
  // link stays a link to what is replaced.
  explicit NewFile(const std::string& path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  const File& file() const { return *file_; }
  const std::string& target() const { return target_; }

  // Writes it to the disk and gives it its name, and first, where `also` is not empty, as a second name the
  // target's with `also` behind it.
  void install(const std::string& also = {});

 private:
  std::string target_;
  std::optional<File> file_;
  bool installed_ = false;
};

}  // namespace zeroplan::executor
