#include "planner/predict/delays.hpp"

#include <algorithm>
#include <cmath>

namespace zeroplan::predict {
namespace {

constexpr std::size_t kHost = Rows::kHost;

void add(Readings& to, const Readings& seconds) {
  for (std::size_t r = 0; r < kReadings; ++r) to[r] += seconds[r];
}

constexpr std::size_t kLastBit = 63;
constexpr std::uint64_t bit_of(std::size_t row) { return std::uint64_t{1} << std::min(row, kLastBit); }

double least_of(const Readings& readings) { return *std::min_element(readings.begin(), readings.end()); }
double most_of(const Readings& readings) { return *std::max_element(readings.begin(), readings.end()); }
constexpr double smaller(double one, double other) { return one < other ? one : other; }
constexpr double larger(double one, double other) { return one > other ? one : other; }

bool are_equal(const Readings* one, const Readings* other, std::size_t size, double most) {
  Readings apart{};
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t r = 0; r < kReadings; ++r) {
      apart[r] = larger(apart[r], std::abs(one[i][r] - other[i][r]));
    }
  }
  return most_of(apart) <= most;
}

Readings sum(const Readings& one, const Readings& other) {
  Readings result = one;
  add(result, other);
  return result;
}

}  // namespace

void Delays::wait_for_all() { move(Kind::wait_for_all); }

void Delays::repeat(std::int64_t count) { move(Kind::repeat).count = count; }

void Delays::end_repeat() {
  std::size_t open = moves_.size();
  while (moves_[--open].kind != Kind::repeat || moves_[open].at != 0) {
    if (moves_[open].kind == Kind::end_repeat) open = moves_[open].at;
  }
  moves_[open].at = static_cast<std::uint32_t>(moves_.size());
  for (std::size_t i = open + 1; i < moves_.size(); ++i) {
    const Move& inner = moves_[i];
    if (inner.kind == Kind::run) moves_[open].rows |= bit_of(inner.row) | bit_of(kHost);
    if (inner.kind == Kind::wait || inner.kind == Kind::set) moves_[open].rows |= bit_of(inner.row);
    if (inner.kind == Kind::repeat) moves_[open].rows |= inner.rows;
  }
  move(Kind::end_repeat).at = static_cast<std::uint32_t>(open);
}

void Delays::append(const Delays& later) {
  const auto moves = static_cast<std::uint32_t>(moves_.size());
  const auto runs = static_cast<std::uint32_t>(runs_.size());
  runs_.insert(runs_.end(), later.runs_.begin(), later.runs_.end());
  rows_ = std::max(rows_, later.rows_);
  for (Move move : later.moves_) {
    if (move.kind == Kind::run) move.at += runs;
    if (move.kind == Kind::repeat || move.kind == Kind::end_repeat) move.at += moves;
    moves_.push_back(move);
  }
}

Delays Delays::power(std::int64_t count) const {
  Delays result;
  result.repeat(count);
  result.append(*this);
  result.end_repeat();
  return result;
}

Readings SecondsByCount::at(std::int64_t count) const {
  const auto known = static_cast<std::int64_t>(first.size()) - 1;
  Readings seconds = first[static_cast<std::size_t>(std::min(count, known))];
  if (count <= known) return seconds;
  for (std::size_t r = 0; r < kReadings; ++r) seconds[r] += static_cast<double>(count - known) * each[r];
  return seconds;
}

void SecondsAlone::append(const SecondsAlone& later, std::int64_t count) {
  for (std::size_t part = 0; part < kExposedParts; ++part) {
    busy[part] += static_cast<double>(count) * later.busy[part];
    waiting[part] += static_cast<double>(count) * later.waiting[part];
  }
}

void SectionTime::append(const SectionTime& later, std::int64_t count) {
  count == 1 ? delays.append(later.delays) : delays.append(later.delays.power(count));
  alone.append(later.alone, count);
}

void Walk::start(std::size_t rows) {
  constexpr std::size_t kUsualChoices = 512;
  choices_.reserve(kUsualChoices);
  clocks_.assign(rows, Readings{});
}

void Walk::run(const Delays& delays) {
  start(delays.rows());
  go_on(delays);
}

void Walk::go_on(const Delays& delays) { run(delays, 0, delays.moves_.size()); }

Readings Walk::latest() const {
  Readings latest = clocks_.front();
  for (const Readings& clock : clocks_) {
    for (std::size_t r = 0; r < kReadings; ++r) latest[r] = larger(latest[r], clock[r]);
  }
  return latest;
}

void Walk::wait_for_all() {
  Readings last = clocks_.front();
  for (const Readings& clock : clocks_) choose(last, last, clock);
  std::fill(clocks_.begin(), clocks_.end(), last);
}

inline void Walk::choose(Readings& to, const Readings& one, const Readings& other) {
  if (recording_ > 0) choices_.push_back({one, other});
  for (std::size_t r = 0; r < kReadings; ++r) to[r] = larger(one[r], other[r]);
}

void Walk::run(const Delays& delays, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    const Delays::Move& move = delays.moves_[i];
    switch (move.kind) {
      case Delays::Kind::run: {
        const Delays::Run& run = delays.runs_[move.at];
        if (move.row != kHost) {
          choose(clocks_[move.row], sum(clocks_[move.row], run.row), sum(clocks_[kHost], run.behind_host));
        }
        add(clocks_[kHost], run.host);
        break;
      }
      case Delays::Kind::wait:
        choose(clocks_[move.row], clocks_[move.row], clocks_[move.other]);
        break;
      case Delays::Kind::set:
        clocks_[move.row] = clocks_[move.other];
        break;
      case Delays::Kind::wait_for_all:
        wait_for_all();
        break;
      case Delays::Kind::repeat:
        repeat(delays, i);
        i = move.at;
        break;
      case Delays::Kind::end_repeat:
        break;
    }
  }
}

double Walk::tolerance() const {
  constexpr double kRounding = 1e-14;
  double last = 0;  // of the whole step, which is later than the readings that leave something out
  for (const Readings& clock : clocks_) last = larger(last, clock.front());
  return kRounding * last;
}

// Whether the iteration that left choices from `middle` on goes on as the one that left those from `before` on did: of
// each choice one side was chosen both times, and neither goes on by more than what came of the choice. Then the next
// iteration goes on in the same way, as long as what it starts from does.
bool Walk::is_steady(std::size_t before, std::size_t middle, double most) const {
  Readings behind{}, ahead{};
  for (std::size_t i = 0; i < middle - before; ++i) {
    const Choice& then = choices_[before + i];
    const Choice& now = choices_[middle + i];
    for (std::size_t r = 0; r < kReadings; ++r) {
      const double came_then = larger(then.row[r], then.other[r]);
      const double came_now = larger(now.row[r], now.other[r]);
      const double row = smaller(then.row[r] - came_then, now.row[r] - came_now);
      const double other = smaller(then.other[r] - came_then, now.other[r] - came_now);
      behind[r] = smaller(behind[r], larger(row, other));
      const double goes_on = larger(now.row[r] - then.row[r], now.other[r] - then.other[r]);
      ahead[r] = larger(ahead[r], goes_on - (came_now - came_then));
    }
  }
  return least_of(behind) >= -most && most_of(ahead) <= most;
}

// Iterates until all goes on by the same time each, and returns after how many of `count` iterations that was. The rows
// then go on by `steps` of the repeat.
template <class Iterate>
std::int64_t Walk::until_steady(std::int64_t count, std::uint64_t moved, Iterate&& iterate) {
  auto& [rows, start, steps, last_steps] = repeats_.at(recording_);
  rows.clear();
  for (std::size_t row = 0; row < clocks_.size(); ++row) {
    if ((moved & bit_of(row)) != 0) rows.push_back(row);
  }
  start.resize(rows.size());
  steps.resize(rows.size());
  last_steps.resize(rows.size());
  constexpr std::size_t kMostKept = 4096;
  std::size_t before = choices_.size(), jumps_before = jumps_.size();  // of the iteration before
  ++recording_;
  std::int64_t done = 0;
  while (done < count) {
    const std::size_t middle = choices_.size(), jumps_middle = jumps_.size();
    for (std::size_t i = 0; i < rows.size(); ++i) start[i] = clocks_[rows[i]];
    iterate();
    ++done;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (std::size_t r = 0; r < kReadings; ++r) steps[i][r] = clocks_[rows[i]][r] - start[i][r];
    }
    const std::size_t jumps = jumps_middle - jumps_before;
    if (done > 1 && choices_.size() - middle == middle - before && jumps_.size() - jumps_middle == jumps) {
      const double most = tolerance();
      if (are_equal(steps.data(), last_steps.data(), rows.size(), most) &&
          are_equal(jumps_.data() + jumps_before, jumps_.data() + jumps_middle, jumps, most) &&
          is_steady(before, middle, most)) {
        break;
      }
    }
    std::swap(steps, last_steps);
    before = middle;
    jumps_before = jumps_middle;
    if (recording_ == 1 && before > kMostKept) {
      choices_.erase(choices_.begin(), choices_.begin() + static_cast<std::ptrdiff_t>(before));
      before = 0;
    }
  }
  --recording_;
  return done;
}

void Walk::repeat(const Delays& delays, std::size_t index) {
  const Delays::Move& move = delays.moves_[index];
  const auto body = [&] { run(delays, index + 1, move.at); };
  if (move.count == 1) return body();
  const std::int64_t done = until_steady(move.count, move.rows, body);
  const auto& [rows, start, steps, last_steps] = repeats_.at(recording_);
  const auto rest = static_cast<double>(move.count - done);
  for (std::size_t i = 0; i < rows.size() && rest > 0; ++i) {
    for (std::size_t r = 0; r < kReadings; ++r) clocks_[rows[i]][r] += rest * steps[i][r];
  }
  if (recording_ == 0) {
    choices_.clear();
    jumps_.clear();
    return;
  }
  jumps_.push_back(filled(static_cast<double>(done)));
  if (rest > 0) jumps_.insert(jumps_.end(), steps.begin(), steps.end());
}

SecondsByCount Walk::by_count(const Delays& before, const Delays& body, const Delays& after) {
  constexpr std::int64_t kMost = 16;  // iterations that are tried
  constexpr std::uint64_t kEveryRow = ~std::uint64_t{0};
  SecondsByCount seconds;
  start(std::max({before.rows(), body.rows(), after.rows()}));
  go_on(before);
  Clocks here;
  const std::int64_t done = until_steady(kMost, kEveryRow, [&] {
    here = clocks_;
    go_on(after);
    wait_for_all();
    seconds.first.push_back(clocks_.front());
    std::swap(clocks_, here);
    go_on(body);
  });
  choices_.clear();
  jumps_.clear();
  seconds.goes_on = done < kMost;
  for (std::size_t r = 0; r < kReadings && seconds.goes_on; ++r) {
    seconds.each[r] = seconds.first.back()[r] - seconds.first[seconds.first.size() - 2][r];
  }
  return seconds;
}

}  // namespace zeroplan::predict
