#pragma once

#include <memory>
#include <ostream>
#include <string>

#include "reports/data.hpp"

namespace zeroplan::cli {

// JSON lines that are there as soon as they are written: what a run had come to can be read after it was killed.
// A line that cannot be written does not end the run: close() says so, when there is nothing left to lose.
class RecordStream {
 public:
  // To the file `path`, from its beginning; where it is empty, to `out`. Throws ConfigurationError naming --out
  // when the file cannot be opened.
  RecordStream(const std::string& path, std::ostream& out);
  ~RecordStream();
  RecordStream(const RecordStream&) = delete;
  RecordStream& operator=(const RecordStream&) = delete;

  void write(const reports::Data& line);
  // Throws ConfigurationError when a line could not be written.
  void close();

 private:
  [[noreturn]] void refuse(const std::string& why) const;

  std::string path_;
  std::ostream& out_;
  int descriptor_ = -1;
  std::string failure_;
};

}  // namespace zeroplan::cli
