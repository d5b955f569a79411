#include "planner/predict/delays.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace zeroplan::predict {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

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

void Delays::list_entries() {
  listed_.clear();
  entries_of_listed_.clear();
  for (std::size_t i = 0; i < rows_; ++i) {
    if (is_changed_[i] == 0) continue;
    for (std::size_t j = 0; j < rows_; ++j) {
      if (of(i)[j] != kNever) entries_of_listed_.push_back({j, of(i)[j]});
    }
    listed_.push_back({i, entries_of_listed_.size()});
  }
}

// Every row went on as before, and none waits for one that goes on faster and would overtake it.
bool Delays::is_steady(double latest) const {
  constexpr double kRounding = 2e-15;
  const double tolerance = kRounding * latest;
  for (const Row& row : listed_) {
    if (std::abs(next_[row.row] - steps_[row.row]) > tolerance) return false;
  }
  std::size_t e = 0;
  for (const Row& row : listed_) {
    for (; e < row.end; ++e) {
      if (next_[entries_of_listed_[e].row] > next_[row.row] + tolerance) return false;
    }
  }
  return true;
}

void Delays::advance(Clocks& clocks, std::int64_t count) {
  constexpr int kTries = 64;  // each takes less than a product of the power
  list_entries();
  std::vector<double>& times = clocks.times();
  after_ = times;
  steps_.assign(rows_, 0);
  next_.assign(rows_, 0);  // of rows that do not change, a step is 0
  for (int tries = 0; count > 0; --count, ++tries) {
    if (tries == kTries) return power(count).advance(clocks, 1);
    std::size_t e = 0;
    for (const Row& row : listed_) {
      double latest = kNever;
      for (; e < row.end; ++e) {
        latest = std::max(latest, entries_of_listed_[e].delay + times[entries_of_listed_[e].row]);
      }
      after_[row.row] = latest;
    }
    for (const Row& row : listed_) next_[row.row] = after_[row.row] - times[row.row];
    for (const Row& row : listed_) times[row.row] = after_[row.row];
    if (tries > 0 && count > 1 && is_steady(clocks.latest())) {
      for (const Row& row : listed_) times[row.row] += static_cast<double>(count - 1) * next_[row.row];
      return;
    }
    std::swap(steps_, next_);
  }
}

}  // namespace zeroplan::predict
