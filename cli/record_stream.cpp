#include "cli/record_stream.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "planner/error.hpp"
#include "reports/writers.hpp"

namespace zeroplan::cli {

RecordStream::RecordStream(const std::string& path, std::ostream& out) : path_(path), out_(out) {
  if (path_.empty()) return;
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) refuse(std::strerror(errno));
}

RecordStream::~RecordStream() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void RecordStream::refuse(const std::string& why) const {
  throw ConfigurationError(
      Problem{path_.empty() ? "standard output" : "--out", 0, "",
              path_.empty() ? "cannot be written"
                            : fmt::format("{} cannot be written: {}", zeroplan::quoted(path_), why)});
}

void RecordStream::write(const reports::Data& line) {
  if (!failure_.empty()) return;
  const std::string text = reports::write_json(line, true);
  if (descriptor_ < 0) {
    if (!(out_ << text << std::flush)) failure_ = "it was closed";
    return;
  }
  // In one call where the system takes it whole, so that no reader sees half a line.
  for (std::string_view left = text; !left.empty();) {
    const ssize_t written = ::write(descriptor_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      failure_ = std::strerror(errno);
      return;
    }
    left.remove_prefix(static_cast<std::size_t>(written));
  }
}

void RecordStream::close() {
  if (descriptor_ >= 0 && ::close(descriptor_) != 0 && failure_.empty()) failure_ = std::strerror(errno);
  descriptor_ = -1;
  if (!failure_.empty()) refuse(failure_);
}

}  // namespace zeroplan::cli
