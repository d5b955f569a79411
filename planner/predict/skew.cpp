#include "planner/predict/skew.hpp"

#include <array>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <utility>

#include "planner/predict/repetition.hpp"

namespace zeroplan::predict {
namespace {

using program::Instruction;
using program::Op;

// The first collective of a piece of program, and how often a pass through the piece calls it: it waits also
// for what was computed before the piece.
struct First {
  std::size_t index = 0;
  double calls = 1;
};

// A piece: the body of a repeat, or the whole.
struct Piece {
  double since = 0;  // seconds computed since the last collective, or since the piece began
  std::optional<First> first;
};

class Walk {
 public:
  Walk(double skew, const std::vector<double>& seconds)
      : skew_(skew), seconds_(seconds), waiting_(seconds.size()) {}

  void one(const Instruction& instruction, std::size_t index) {
    switch (instruction.op) {
      case Op::repeat:
        if (++depth_ == kDeepestRepeat) throw std::logic_error("waiting_for_others: repeats nested too deep");
        pieces_[depth_] = {};
        counts_[depth_] = static_cast<double>(instruction.dims[0]);
        break;
      case Op::end_repeat:
        close();
        break;
      default:
        if (instruction.group == program::kNoGroup) {
          pieces_[depth_].since += seconds_[index];
          break;
        }
        if (!pieces_[depth_].first) pieces_[depth_].first = First{index, 1};
        waiting_[index] += skew_ * pieces_[depth_].since;
        pieces_[depth_].since = 0;
    }
  }

  std::vector<double> waiting() { return std::move(waiting_); }

 private:
  // The first collective of a body follows what came before the repeat once, and the end of the body the
  // other times.
  void close() {
    const Piece body = pieces_[depth_];
    const double count = counts_[depth_];
    Piece& outer = pieces_[--depth_];
    if (!body.first) {
      outer.since += count * body.since;
      return;
    }
    const double before = outer.since + (count - 1) * body.since;
    waiting_[body.first->index] += skew_ * before / (count * body.first->calls);
    if (!outer.first) outer.first = First{body.first->index, count * body.first->calls};
    outer.since = body.since;
  }

  double skew_;
  const std::vector<double>& seconds_;
  std::vector<double> waiting_;
  std::array<Piece, kDeepestRepeat> pieces_{};
  std::array<double, kDeepestRepeat> counts_{};
  std::size_t depth_ = 0;
};

}  // namespace

std::vector<double> waiting_for_others(const program::StepProgram& program, double skew,
                                       const std::vector<double>& seconds) {
  Walk walk(skew, seconds);
  for (std::size_t i = 0; i < program.code.size(); ++i) walk.one(program.code[i], i);
  return walk.waiting();
}

}  // namespace zeroplan::predict
