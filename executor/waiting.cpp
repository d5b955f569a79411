#include "executor/waiting.hpp"

#include <algorithm>
#include <span>

namespace zeroplan::executor {

namespace {

// Adds how long this rank waited in each instruction. The rank of a group that is in a call shortest came
// last and waited for none; what the others took beyond it was waiting. Every rank of the group must call it.
void add_waiting(std::vector<double>& of_instruction, const std::vector<Interpreter::Call>& calls,
                 ControlPlane& ranks) {
  std::vector<float> own;
  own.reserve(calls.size());
  for (const Interpreter::Call& call : calls) own.push_back(call.seconds);
  const std::vector<float> all = gathered(ranks, std::span<const float>(own));
  for (std::size_t i = 0; i < calls.size(); ++i) {
    float least = own[i];
    for (std::size_t at = i; at < all.size(); at += calls.size()) least = std::min(least, all[at]);
    of_instruction[calls[i].instruction] += static_cast<double>(own[i] - least);
  }
}

}  // namespace

void add_waiting(std::vector<double>& of_instruction, Rank& rank) {
  for (std::size_t group = 0; group < rank.program().groups.size(); ++group) {
    const std::vector<Interpreter::Call> calls = rank.interpreter().calls(group);
    if (!calls.empty()) add_waiting(of_instruction, calls, rank.control_plane(group));
  }
}

}  // namespace zeroplan::executor
