#include "planner/predict/delays.hpp"

#include <algorithm>
#include <cmath>

namespace zeroplan::predict {
namespace {

constexpr std::size_t kHost = Rows::kHost;
void add(Readings& to, const Readings& seconds) {
  for (std::size_t r = 0; r < kReadings; ++r) to[r] += seconds[r];
}

bool are_equal(const Readings* one, const Readings* other, std::size_t size, double most) {
  bool equal = true;
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t r = 0; r < kReadings; ++r) equal &= std::abs(one[i][r] - other[i][r]) <= most;
  }
  return equal;
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

SecondsByCount seconds_by_count(const Delays& before, const Delays& body, const Delays& after) {
  Walk walk(std::max({before.rows(), body.rows(), after.rows()}));
  walk.run(before);
  return walk.by_count(body, after);
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

void Walk::run(const Delays& delays) { run(delays, 0, delays.moves_.size()); }

Readings Walk::latest() const {
  Readings latest = clocks_.front();
  for (const Readings& clock : clocks_) {
    for (std::size_t r = 0; r < kReadings; ++r) latest[r] = std::max(latest[r], clock[r]);
  }
  return latest;
}

void Walk::wait_for_all() {
  Readings last = clocks_.front();
  for (const Readings& clock : clocks_) choose(last, last, clock);
  std::fill(clocks_.begin(), clocks_.end(), last);
}

void Walk::choose(Readings& to, const Readings& one, const Readings& other) {
  if (recording_ > 0) choices_.push_back({one, other});
  for (std::size_t r = 0; r < kReadings; ++r) to[r] = one[r] > other[r] ? one[r] : other[r];
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
        repeat(delays, i + 1, move.at, move.count);
        i = move.at;
        break;
      case Delays::Kind::end_repeat:
        break;
    }
  }
}

double Walk::tolerance() const {
  constexpr double kRounding = 1e-14;
  const Readings last = latest();
  return kRounding * *std::max_element(last.begin(), last.end());
}

// Whether the iteration that left choices from `middle` on goes on as the one that left those from `before` on did: each
// choice fell as before, the side that was chosen goes on by as much as what came of the choice did, and the other by no
// more. Then the next iteration goes on in the same way, as long as what it starts from does.
bool Walk::is_steady(std::size_t before, std::size_t middle, double most) const {
  for (std::size_t i = 0; i < middle - before; ++i) {
    const Choice& then = choices_[before + i];
    const Choice& now = choices_[middle + i];
    bool steady = true;
    for (std::size_t r = 0; r < kReadings; ++r) {
      const double row = now.row[r] - then.row[r];
      const double other = now.other[r] - then.other[r];
      const bool is_row = now.row[r] > now.other[r];
      const double chosen = is_row ? row : other;
      const double left = is_row ? other : row;
      const double came = std::max(now.row[r], now.other[r]) - std::max(then.row[r], then.other[r]);
      steady &= left <= chosen + most && std::abs(came - chosen) <= most;
    }
    if (!steady) return false;
  }
  return true;
}

// Iterates until all goes on by the same time each, and returns after how many of `count` iterations that was. The rows
// then go on by `steps` of the repeat.
template <class Iterate>
std::int64_t Walk::until_steady(std::int64_t count, Iterate&& iterate) {
  auto& [start, steps, last_steps] = repeats_.at(recording_);
  const std::size_t rows = clocks_.size();
  start.resize(rows);
  steps.resize(rows);
  last_steps.resize(rows);
  constexpr std::size_t kMostKept = 4096;
  std::size_t before = choices_.size(), jumps_before = jumps_.size();  // of the iteration before
  ++recording_;
  std::int64_t done = 0;
  while (done < count) {
    const std::size_t middle = choices_.size(), jumps_middle = jumps_.size();
    std::copy(clocks_.begin(), clocks_.end(), start.begin());
    iterate();
    ++done;
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t r = 0; r < kReadings; ++r) steps[i][r] = clocks_[i][r] - start[i][r];
    }
    const std::size_t jumps = jumps_middle - jumps_before;
    if (done > 1 && choices_.size() - middle == middle - before && jumps_.size() - jumps_middle == jumps) {
      const double most = tolerance();
      if (are_equal(steps.data(), last_steps.data(), rows, most) &&
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

void Walk::repeat(const Delays& delays, std::size_t begin, std::size_t end, std::int64_t count) {
  if (count == 1) return run(delays, begin, end);
  const std::int64_t done = until_steady(count, [&] { run(delays, begin, end); });
  const Clocks& steps = repeats_.at(recording_).steps;
  if (done < count) {
    const auto rest = static_cast<double>(count - done);
    for (std::size_t i = 0; i < clocks_.size(); ++i) {
      for (std::size_t r = 0; r < kReadings; ++r) clocks_[i][r] += rest * steps[i][r];
    }
  }
  if (recording_ == 0) {
    choices_.clear();
    jumps_.clear();
    return;
  }
  jumps_.push_back(filled(static_cast<double>(done)));
  if (done < count) jumps_.insert(jumps_.end(), steps.begin(), steps.end());
}

SecondsByCount Walk::by_count(const Delays& body, const Delays& after) {
  constexpr std::int64_t kMost = 16;  // iterations that are tried
  SecondsByCount seconds;
  const std::int64_t done = until_steady(kMost, [&] {
    const Clocks here = clocks_;
    run(after);
    wait_for_all();
    seconds.first.push_back(clocks_.front());
    clocks_ = here;
    run(body);
  });
  seconds.goes_on = done < kMost;
  for (std::size_t r = 0; r < kReadings && seconds.goes_on; ++r) {
    seconds.each[r] = seconds.first.back()[r] - seconds.first[seconds.first.size() - 2][r];
  }
  return seconds;
}

}  // namespace zeroplan::predict
