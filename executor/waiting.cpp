#include "executor/waiting.hpp"

namespace zeroplan::executor {

namespace {

// Adds how long this rank waited in each instruction. The rank of a group that is in a call shortest came
// last and waited for none; what the others took beyond it was waiting. Every rank of the group must call it.
void add_waiting(std::vector<double>& of_instruction, const std::vector<Profile::Call>& calls,
                 Communicator& group) {
  if (calls.empty()) return;
  std::vector<float> least;  // negated, as there is a maximum only
  least.reserve(calls.size());
  for (const Profile::Call& call : calls) least.push_back(-call.seconds);
  group.all_reduce({reinterpret_cast<std::byte*>(least.data()), program::DataType::fp32,
                    static_cast<Elements>(least.size())},
                   Reduction::maximum);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    of_instruction[calls[i].instruction] += static_cast<double>(calls[i].seconds + least[i]);
  }
}

}  // namespace

void add_waiting(std::vector<double>& of_instruction, Rank& rank, std::size_t calls) {
  for (std::size_t group = 0; group < rank.groups().size(); ++group) {
    const auto& noted = rank.interpreter().profile().collectives[group];
    if (noted.size() < calls) continue;
    add_waiting(of_instruction, noted, *rank.groups()[group]);
    rank.interpreter().clear_calls(static_cast<program::GroupId>(group));
  }
}

std::vector<double> measure_waiting(Rank& rank) {
  std::vector<double> of_instruction(rank.interpreter().profile().of_instruction.size());
  add_waiting(of_instruction, rank, 0);
  return of_instruction;
}

}  // namespace zeroplan::executor
