#include "planner/predict/delays.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace zeroplan::predict {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

}  // namespace

void Delays::clear(std::size_t rows) {
  rows_ = rows;
  entries_.assign(rows * rows, kNever);
  for (std::size_t i = 0; i < rows; ++i) entries_[i * rows + i] = 0;
}

void Delays::append(const Delays& later) {
  std::vector<double> result(entries_.size(), kNever);
  for (std::size_t i = 0; i < rows_; ++i) {
    double* const to = result.data() + i * rows_;
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
  constexpr int kTries = 12;
  std::vector<double>& times = clocks.times();
  // By columns, so that the rows' maxima are taken side by side.
  std::vector<double> columns(entries_.size());
  for (std::size_t i = 0; i < rows_; ++i) {
    for (std::size_t j = 0; j < rows_; ++j) columns[j * rows_ + i] = of(i)[j];
  }
  std::vector<double> steps(rows_), next(rows_), after(rows_);
  for (int tries = 0; count > 0; --count, ++tries) {
    if (tries == kTries) return power(count).advance(clocks, 1);
    std::fill(after.begin(), after.end(), kNever);
    for (std::size_t j = 0; j < rows_; ++j) {
      const double* const column = columns.data() + j * rows_;
      const double ready = times[j];
      for (std::size_t i = 0; i < rows_; ++i) after[i] = std::max(after[i], column[i] + ready);
    }
    for (std::size_t i = 0; i < rows_; ++i) next[i] = after[i] - times[i];
    std::swap(times, after);
    if (tries > 0 && count > 1 && is_steady(steps, next, clocks.latest())) {
      for (std::size_t i = 0; i < rows_; ++i) times[i] += static_cast<double>(count - 1) * next[i];
      return;
    }
    std::swap(steps, next);
  }
}

// Every row went on as before, and none waits for one that goes on faster and would overtake it.
bool Delays::is_steady(const std::vector<double>& before, const std::vector<double>& now,
                       double latest) const {
  constexpr double kRounding = 2e-15;
  const double tolerance = kRounding * latest;
  for (std::size_t i = 0; i < rows_; ++i) {
    if (std::abs(now[i] - before[i]) > tolerance) return false;
  }
  for (std::size_t i = 0; i < rows_; ++i) {
    for (std::size_t j = 0; j < rows_; ++j) {
      if (of(i)[j] != kNever && now[j] > now[i] + tolerance) return false;
    }
  }
  return true;
}

}  // namespace zeroplan::predict
