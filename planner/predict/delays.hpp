#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/predict/schedule.hpp"

namespace zeroplan::predict {

// A piece of program in (max, +) algebra, as a square matrix: entry (i, j) is how long after row j was ready at the
// start row i is ready at the end; minus infinity where it does not wait for it. Pieces one after the other are a
// product, repeats a power.
class Delays {
 public:
  // Of nothing: every row is ready when it was.
  void clear(std::size_t rows);

  void wait(std::size_t row, std::size_t other) {
    is_changed_[row] = true;
    double* const to = of(row);
    const double* const from = of(other);
    for (std::size_t j = 0; j < rows_; ++j) to[j] = to[j] > from[j] ? to[j] : from[j];
  }
  void set(std::size_t row, std::size_t other) {
    is_changed_[row] = true;
    double* const to = of(row);
    const double* const from = of(other);
    for (std::size_t j = 0; j < rows_; ++j) to[j] = from[j];
  }
  void spend(std::size_t row, double seconds) {
    is_changed_[row] = true;
    double* const to = of(row);
    for (std::size_t j = 0; j < rows_; ++j) to[j] += seconds;
  }
  void run(std::size_t row, std::size_t /*index*/, double seconds) { spend(row, seconds); }

  // This, then `later`.
  void append(const Delays& later);
  // `count` times in a row, by squaring.
  Delays power(std::int64_t count) const;
  // Clocks after this, `count` times in a row. Mostly they soon go on by the same time each time; from there on they
  // are moved at once.
  void advance(Clocks& clocks, std::int64_t count);

 private:
  double* of(std::size_t row) { return entries_.data() + row * rows_; }
  const double* of(std::size_t row) const { return entries_.data() + row * rows_; }
  void make_identity(std::size_t row);
  void list_entries();
  bool is_steady(double latest) const;

  std::size_t rows_ = 0;
  std::vector<double> entries_;
  std::vector<char> is_changed_;  // by row: it may be another than that of nothing

  // Of advance(), kept because a reading has many: what changed rows wait for, and by how much rows went on.
  struct Entry {
    std::size_t row = 0;
    double delay = 0;
  };
  struct Row {
    std::size_t row = 0;
    std::size_t end = 0;  // of its entries
  };
  std::vector<Row> listed_;
  std::vector<Entry> entries_of_listed_;
  std::vector<double> after_, steps_, next_;
};

}  // namespace zeroplan::predict
