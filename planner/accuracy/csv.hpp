#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zeroplan::accuracy {

// A CSV file with a header line, as text.
struct CsvTable {
  struct Row {
    int line = 0;  // 1-based, where it starts
    std::vector<std::string> fields;
  };
  std::string source;
  std::vector<std::string> header;
  std::vector<Row> rows;

  std::optional<std::size_t> column(std::string_view name) const;
};

// RFC 4180, strictly: fields that hold commas, quotes or line ends stand between quotes, with quotes doubled;
// lines end with LF or CR LF; every line has as many fields as the header. A byte-order mark is skipped.
// Throws ConfigurationError with file and line: every ragged line at once, any other problem ends the
// reading.
CsvTable read_csv(std::string_view text, std::string source);

}  // namespace zeroplan::accuracy
