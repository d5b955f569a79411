#include "planner/predict/delays.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace zeroplan::predict {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// What a changed row waits for.
struct Entry {
  std::size_t row = 0;
  double delay = 0;
};
struct Row {
  std::size_t row = 0;
  std::size_t end = 0;  // of its entries
};

// Every row went on as before, and none waits for one that goes on faster and would overtake it.
bool is_steady(const std::vector<Row>& rows, const std::vector<Entry>& entries,
               const std::vector<double>& before, const std::vector<double>& now, double latest) {
  constexpr double kRounding = 2e-15;
  const double tolerance = kRounding * latest;
  for (const Row& row : rows) {
    if (std::abs(now[row.row] - before[row.row]) > tolerance) return false;
  }
  std::size_t e = 0;
  for (const Row& row : rows) {
    for (; e < row.end; ++e) {
      if (now[entries[e].row] > now[row.row] + tolerance) return false;
    }
  }
  return true;
}

}  // namespace

void Delays::make_identity(std::size_t row) {
  std::fill_n(of(row), rows_, kNever);
  of(row)[row] = 0;
  is_changed_[row] = false;
}

void Delays::clear(std::size_t rows) {
  if (rows != rows_) {
    rows_ = rows;
    entries_.resize(rows * rows);
    is_changed_.assign(rows, true);
  }
  for (std::size_t i = 0; i < rows; ++i) {
    if (is_changed_[i] != 0) make_identity(i);
  }
}

void Delays::append(const Delays& later) {
  std::vector<double> result = entries_;
  for (std::size_t i = 0; i < rows_; ++i) {
    if (later.is_changed_[i] == 0) continue;
    double* const to = result.data() + i * rows_;
    std::fill_n(to, rows_, kNever);
    for (std::size_t k = 0; k < rows_; ++k) {
      const double delay = later.of(i)[k];
      if (delay == kNever) continue;
      const double* const from = of(k);
      for (std::size_t j = 0; j < rows_; ++j) {
        const double candidate = delay + from[j];
        to[j] = to[j] > candidate ? to[j] : candidate;
      }
    }
  }
  entries_ = std::move(result);
  for (std::size_t i = 0; i < rows_; ++i) is_changed_[i] = is_changed_[i] | later.is_changed_[i];
}

Delays Delays::power(std::int64_t count) const {
  Delays result = *this;
  Delays square = *this;
  for (--count; count > 0; count /= 2) {
    if (count % 2 == 1) result.append(square);
    if (count > 1) square.append(square);
  }
  return result;
}

void Delays::advance(Clocks& clocks, std::int64_t count) const {
  constexpr int kTries = 64;  // each takes less than a product of the power
  std::vector<Row> rows;
  std::vector<Entry> entries;
  rows.reserve(rows_);
  entries.reserve(4 * rows_);
  for (std::size_t i = 0; i < rows_; ++i) {
    if (is_changed_[i] == 0) continue;
    for (std::size_t j = 0; j < rows_; ++j) {
      if (of(i)[j] != kNever) entries.push_back({j, of(i)[j]});
    }
    rows.push_back({i, entries.size()});
  }
  std::vector<double>& times = clocks.times();
  std::vector<double> after = times, steps(rows_), next(rows_);  // of rows that do not change, a step is 0
  for (int tries = 0; count > 0; --count, ++tries) {
    if (tries == kTries) return power(count).advance(clocks, 1);
    std::size_t e = 0;
    for (const Row& row : rows) {
      double latest = kNever;
      for (; e < row.end; ++e) latest = std::max(latest, entries[e].delay + times[entries[e].row]);
      after[row.row] = latest;
    }
    for (const Row& row : rows) next[row.row] = after[row.row] - times[row.row];
    for (const Row& row : rows) times[row.row] = after[row.row];
    if (tries > 0 && count > 1 && is_steady(rows, entries, steps, next, clocks.latest())) {
      for (const Row& row : rows) times[row.row] += static_cast<double>(count - 1) * next[row.row];
      return;
    }
    std::swap(steps, next);
  }
}

}  // namespace zeroplan::predict
