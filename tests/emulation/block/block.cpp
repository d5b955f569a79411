#include "block/block.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <boost/context/fiber.hpp>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "block/identity.hpp"
#include "block/switching.hpp"

thread_local constinit zeroplan::emulation::Index3 threadIdx{};
thread_local constinit zeroplan::emulation::Index3 blockIdx{};
thread_local constinit zeroplan::emulation::Index3 blockDim{};
thread_local constinit zeroplan::emulation::Index3 gridDim{};

namespace zeroplan::emulation {

namespace {

namespace context = boost::context;

// Thrown through a lane's kernel when its grid has failed.
struct Abandoned {};

struct Place {
  const char* operation = "";
  const char* file = "";
  unsigned line = 0;

  bool operator==(const Place& other) const {
    return std::strcmp(operation, other.operation) == 0 && line == other.line &&
           std::strcmp(file, other.file) == 0;
  }
  std::string text() const {
    const char* last = std::strrchr(file, '/');
    return fmt::format("{} ({}:{})", operation, last == nullptr ? file : last + 1, line);
  }
};

// Lanes of a warp that wait for each other.
struct Meeting {
  Place place;
  unsigned mask = 0, arrived = 0;
  Combine combine = nullptr;
  Ordering* ordering = nullptr;
  std::array<void*, kWarp> brought{};
};

struct Copy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t bytes = 0, zeros = 0;  // behind the bytes
  std::uint64_t group = 0;

  void run() const { std::fill_n(std::copy_n(from, bytes, to), zeros, std::byte{0}); }
};

// Of the meetings of a warp, in turn: lanes come to the next one while others have not left this one.
struct WarpOrderings {
  std::array<Ordering, 64> all{};
  std::size_t next = 0;

  Ordering* take() { return &all[next++ % all.size()]; }
};

enum class State : std::uint8_t { ready, waiting, ended };

struct Lane {
  Index3 index;
  unsigned number = 0;
  State state = State::ready;
  Place place;               // where it waits
  unsigned counted = 0;      // of the last barrier
  std::vector<Copy> copies;  // that have not happened yet, the oldest first
  std::uint64_t group = 0;   // that copies belong to now
  Stack stack;
  context::fiber fiber;
};

struct Order {
  LaneOrder order = LaneOrder::forward;
  std::uint64_t seed = 0;
};
struct ChosenOrder {
  std::mutex mutex;
  Order order;
};
ChosenOrder& chosen_order() {
  static ChosenOrder chosen;
  return chosen;
}
Order order_of_lanes() {
  ChosenOrder& chosen = chosen_order();
  const std::lock_guard lock(chosen.mutex);
  return chosen.order;
}

std::string text_of(const std::vector<unsigned>& lanes) {
  std::string text = lanes.size() == 1 ? "lane " : "lanes ";
  for (std::size_t i = 0; i < lanes.size();) {
    std::size_t end = i + 1;
    while (end < lanes.size() && lanes[end] == lanes[end - 1] + 1) ++end;
    if (i > 0) text += ", ";
    text += fmt::format("{}", lanes[i]);
    if (end - i > 1) text += fmt::format(" to {}", lanes[end - 1]);
    i = end;
  }
  return text;
}

std::uint64_t volume(const Index3& shape) { return std::uint64_t{shape.x} * shape.y * shape.z; }

Index3 index_of(std::uint64_t number, const Index3& shape) {
  return {static_cast<unsigned>(number % shape.x), static_cast<unsigned>(number / shape.x % shape.y),
          static_cast<unsigned>(number / shape.x / shape.y)};
}

class Grid;
thread_local constinit Grid* running = nullptr;

// The lanes of one block after another; a lane's fiber lives as long as the grid.
class Grid {
 public:
  Grid(const char* name, const GridShape& shape, void (*kernel)(const void*), const void* self)
      : name_(name),
        shape_(shape),
        kernel_(kernel),
        self_(self),
        order_(order_of_lanes()),
        random_(order_.seed),
        lanes_(volume(shape.block)) {
    if (lanes_.empty() || lanes_.size() > 1024) {
      throw BlockError(fmt::format("{}: a block of {} threads", name_, lanes_.size()));
    }
    shared_ = std::make_unique<std::byte[]>(shape.shared_bytes);
    meetings_.resize((lanes_.size() + kWarp - 1) / kWarp);
    orderings_.resize(meetings_.size());
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      lanes_[i].index = index_of(i, shape.block);
      lanes_[i].number = static_cast<unsigned>(i);
    }
  }
  Grid(const Grid&) = delete;
  Grid& operator=(const Grid&) = delete;
  Grid(Grid&&) = delete;
  Grid& operator=(Grid&&) = delete;
  ~Grid() {
    leaving_ = true;
    for (Lane& lane : lanes_) {
      if (lane.fiber) resume(lane);
    }
  }

  void run() {
    if (lanes_.empty()) return;
    blockDim = shape_.block;
    gridDim = shape_.grid;
    const std::uint64_t blocks = volume(shape_.grid);
    if (order_.order != LaneOrder::random) {
      for (std::uint64_t i = 0; i < blocks; ++i) {
        run_block(order_.order == LaneOrder::forward ? i : blocks - 1 - i);
      }
      return;
    }
    std::vector<std::uint64_t> numbers(blocks);
    std::iota(numbers.begin(), numbers.end(), 0);
    std::shuffle(numbers.begin(), numbers.end(), random_);
    for (const std::uint64_t number : numbers) run_block(number);
  }

  void meet(const Place& place, unsigned mask, Combine combine, void* brought, bool orders);
  unsigned barrier(const Place& place, bool brought);
  void start_copy(const Copy& copy);
  void end_copy_group() { ++current_->group; }
  void wait_for_copies(unsigned groups_left);
  std::byte* shared() const { return shared_.get(); }
  const Lane& lane() const { return *current_; }

  [[noreturn]] void fail(const std::string& why) const {
    throw BlockError(fmt::format("{}, block ({}, {}, {}), lane {}: {}", name_, blockIdx.x, blockIdx.y,
                                 blockIdx.z, current_->number, why));
  }

 private:
  void run_block(std::uint64_t number) {
    blockIdx = index_of(number, shape_.grid);
    std::fill_n(shared_.get(), shape_.shared_bytes, std::byte{0xff});
    for (Lane& lane : lanes_) {
      lane.state = State::ready;
      lane.group = 0;
    }
    ended_ = 0;
    start_.release();
    std::vector<std::size_t> warps(meetings_.size());
    std::iota(warps.begin(), warps.end(), 0);
    if (order_.order == LaneOrder::reverse) std::reverse(warps.begin(), warps.end());
    while (ended_ < lanes_.size()) {
      if (order_.order == LaneOrder::random) std::shuffle(warps.begin(), warps.end(), random_);
      bool any = false;
      for (const std::size_t warp : warps) {
        // A warp runs as far as it can without the others, at random only sometimes.
        while (run_warp(warp)) {
          any = true;
          if (order_.order == LaneOrder::random && random_() % 2 == 0) break;
        }
      }
      if (!any) throw BlockError(deadlock());
    }
    end_.acquire();
  }

  // Resumes each lane that is ready, once; false: none is.
  bool run_warp(std::size_t warp) {
    std::array<std::size_t, kWarp> turn{};
    const std::size_t first = warp * kWarp;
    const std::size_t count = std::min<std::size_t>(kWarp, lanes_.size() - first);
    const auto end = turn.begin() + static_cast<std::ptrdiff_t>(count);
    std::iota(turn.begin(), end, first);
    if (order_.order == LaneOrder::reverse) std::reverse(turn.begin(), end);
    if (order_.order == LaneOrder::random) std::shuffle(turn.begin(), end, random_);
    bool any = false;
    std::for_each(turn.begin(), end, [&](std::size_t i) {
      if (lanes_[i].state != State::ready) return;
      any = true;
      resume(lanes_[i]);
      if (failure_) std::rethrow_exception(failure_);
    });
    return any;
  }

  void resume(Lane& lane) {
    current_ = &lane;
    threadIdx = lane.index;
    if (!lane.fiber) {
      lane.fiber =
          context::fiber(std::allocator_arg, lane.stack.allocator(), [this, &lane](context::fiber&& back) {
            lane.stack.entered();
            return live(lane, std::move(back));
          });
    }
    lane.stack.enter();
    identity_of_lane(lane.number).become();
    context::fiber paused = std::move(lane.fiber).resume();
    identity_.become();
    lane.fiber = std::move(paused);
    lane.stack.left();
    current_ = nullptr;
  }

  // A lane's fiber: one kernel after another.
  context::fiber live(Lane& lane, context::fiber&& back) {
    back_ = std::move(back);
    while (!leaving_) {
      try {
        start_.acquire();
        kernel_(self_);
        end_.release();
        if (!lane.copies.empty()) fail("it ends with copies that it did not wait for");
      } catch (const Abandoned&) {
        break;
      } catch (...) {
        failure_ = std::current_exception();
      }
      lane.state = State::ended;
      ++ended_;
      pause(lane);
    }
    lane.stack.leave_for_good();
    return std::move(back_);
  }

  // Back to the scheduler, until it resumes this lane.
  void pause(Lane& lane) {
    lane.stack.leave();
    context::fiber back = std::move(back_).resume();
    back_ = std::move(back);
    lane.stack.entered();
  }

  void wait(Lane& lane, const Place& place) {
    lane.state = State::waiting;
    lane.place = place;
    pause(lane);
    if (leaving_) throw Abandoned();
  }

  Ordering* come(const Place& place, unsigned mask, Combine combine, void* brought, bool orders);
  unsigned pass_barrier(const Place& place, bool brought);
  std::string deadlock() const;

  const char* name_;
  GridShape shape_;
  void (*kernel_)(const void*);
  const void* self_;
  Order order_;
  std::mt19937_64 random_;
  std::vector<Lane> lanes_;
  std::vector<std::vector<Meeting>> meetings_;  // of each warp
  std::vector<WarpOrderings> orderings_;        // of each warp
  std::unique_ptr<std::byte[]> shared_;
  Lane* current_ = nullptr;
  context::fiber back_;  // to the scheduler
  std::size_t ended_ = 0;
  std::size_t at_barrier_ = 0;
  unsigned counted_ = 0;
  Place barrier_;
  std::uint64_t barriers_ = 0;  // that have been
  // Two in turn: at the next barrier lanes come while others have not left this one.
  std::array<Ordering, 2> barrier_orderings_{};
  Ordering start_, end_;  // of a block
  Identity identity_;     // of the scheduler
  std::exception_ptr failure_;
  bool leaving_ = false;
};

std::string Grid::deadlock() const {
  std::string text =
      fmt::format("{}, block ({}, {}, {}) cannot go on:", name_, blockIdx.x, blockIdx.y, blockIdx.z);
  std::vector<std::pair<std::string, std::vector<unsigned>>> groups;
  for (const Lane& lane : lanes_) {
    const std::string what = lane.state == State::ended ? "ended" : "wait at " + lane.place.text();
    const auto found =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == what; });
    (found == groups.end() ? groups.emplace_back(what, std::vector<unsigned>{}) : *found)
        .second.push_back(lane.number);
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    text += fmt::format("{} {} {}", i > 0 ? ";" : "", text_of(groups[i].second), groups[i].first);
  }
  return text;
}

void Grid::meet(const Place& place, unsigned mask, Combine combine, void* brought, bool orders) {
  Ordering* const ordering = come(place, mask, combine, brought, orders);
  if (orders) ordering->acquire();
}

Ordering* Grid::come(const Place& place, unsigned mask, Combine combine, void* brought, bool orders) {
  const Unwatched unwatched;
  Lane& self = *current_;
  const unsigned in_warp = self.number % kWarp;
  const std::size_t warp = self.number / kWarp;
  const std::size_t there = std::min<std::size_t>(kWarp, lanes_.size() - warp * kWarp);
  if ((mask >> in_warp & 1U) == 0)
    fail(fmt::format("{}: mask {:#010x} leaves out the lane itself", place.text(), mask));
  if (there < kWarp && mask >> there != 0) {
    fail(fmt::format("{}: mask {:#010x} names lanes that a warp of {} does not have", place.text(), mask,
                     there));
  }
  std::vector<Meeting>& meetings = meetings_[warp];
  auto meeting = meetings.end();
  for (auto other = meetings.begin(); other != meetings.end(); ++other) {
    if ((other->mask & mask) == 0) continue;
    if (other->mask != mask || other->place != place || other->combine != combine) {
      fail(fmt::format("it comes to {} with mask {:#010x}, where lanes of mask {:#010x} wait at {}",
                       place.text(), mask, other->mask, other->place.text()));
    }
    meeting = other;
  }
  if (meeting == meetings.end())
    meeting = meetings.insert(meetings.end(), {place, mask, 0, combine, orderings_[warp].take(), {}});
  Ordering* const ordering = meeting->ordering;
  if (orders) ordering->release();
  meeting->arrived |= 1U << in_warp;
  meeting->brought[in_warp] = brought;
  if (meeting->arrived != mask) {
    wait(self, place);
    return ordering;
  }
  const Meeting whole = *meeting;
  meetings.erase(meeting);
  whole.combine(whole.brought.data(), mask);
  for (unsigned i = 0; i < kWarp; ++i) {
    if ((mask >> i & 1U) != 0) lanes_[warp * kWarp + i].state = State::ready;
  }
  return ordering;
}

unsigned Grid::barrier(const Place& place, bool brought) {
  Ordering& ordering = barrier_orderings_[barriers_ % barrier_orderings_.size()];
  ordering.release();
  const unsigned counted = pass_barrier(place, brought);
  ordering.acquire();
  return counted;
}

unsigned Grid::pass_barrier(const Place& place, bool brought) {
  const Unwatched unwatched;
  Lane& self = *current_;
  if (at_barrier_ == 0) {
    barrier_ = place;
    counted_ = 0;
  } else if (barrier_ != place) {
    fail(fmt::format("it comes to {}, where {} lanes of its block wait at {}", place.text(), at_barrier_,
                     barrier_.text()));
  }
  ++at_barrier_;
  counted_ += brought ? 1 : 0;
  if (at_barrier_ < lanes_.size()) {
    wait(self, place);
    return self.counted;
  }
  at_barrier_ = 0;
  ++barriers_;
  for (Lane& lane : lanes_) {
    lane.counted = counted_;
    lane.state = State::ready;
  }
  return counted_;
}

void Grid::start_copy(const Copy& copy) {
  const bool late =
      order_.order == LaneOrder::forward || (order_.order == LaneOrder::random && random_() % 2 == 0);
  if (!late) return copy.run();
  const Unwatched unwatched;
  current_->copies.push_back(copy);
  current_->copies.back().group = current_->group;
}

void Grid::wait_for_copies(unsigned groups_left) {
  std::vector<Copy>& copies = current_->copies;
  const auto due = std::find_if(copies.begin(), copies.end(), [&](const Copy& copy) {
    return copy.group + groups_left >= current_->group;
  });
  std::for_each(copies.begin(), due, [](const Copy& copy) { copy.run(); });
  const Unwatched unwatched;
  copies.erase(copies.begin(), due);
}

Place place_of(const char* operation, const CallPlace& where) { return {operation, where.file, where.line}; }

}  // namespace

void set_lane_order(LaneOrder order, std::uint64_t seed) {
  ChosenOrder& chosen = chosen_order();
  const std::lock_guard lock(chosen.mutex);
  chosen.order = {order, seed};
}

void run_grid(const char* name, const GridShape& shape, void (*kernel)(const void*), const void* self) {
  Grid grid(name, shape, kernel, self);
  Grid* const before = std::exchange(running, &grid);
  try {
    grid.run();
  } catch (...) {
    running = before;
    throw;
  }
  running = before;
}

void meet(const char* operation, unsigned mask, Combine combine, void* brought, const CallPlace& where) {
  running->meet(place_of(operation, where), mask, combine, brought, false);
}
void order_warp(const char* operation, unsigned mask, const CallPlace& where) {
  running->meet(
      place_of(operation, where), mask, [](void* const*, unsigned) {}, nullptr, true);
}

unsigned barrier(const char* operation, bool brought, const CallPlace& where) {
  return running->barrier(place_of(operation, where), brought);
}

std::byte* shared_memory() { return running->shared(); }

unsigned lane_in_warp() { return running->lane().number % kWarp; }

void start_copy(void* to, const void* from, std::size_t bytes, std::size_t zeros) {
  running->start_copy({static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, zeros});
}
void end_copy_group() { running->end_copy_group(); }
void wait_for_copies(unsigned groups_left) { running->wait_for_copies(groups_left); }

void fail(const char* why) { running->fail(why); }

}  // namespace zeroplan::emulation
