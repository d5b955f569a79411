#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "planner/program/step_program.hpp"

// Proves that a program's waits order every two executions that touch the same memory, one of them writing. It knows
// nothing of how the waits were found: it unrolls the program, gives every instance an address, and asks of any two
// such executions whether waits and the order within streams put one before the other.
namespace zeroplan::test {

// How instances get their memory.
enum class Placement {
  stack,     // one block for each space, as the executor's arena with contiguous memory
  best_fit,  // the smallest free piece that is large enough, as an ordinary allocator
};

struct Touch {
  std::size_t space = 0;  // Space; behind the spaces, the communicator of each group
  Bytes begin = 0, end = 0;
  bool writes = false;
  std::int64_t holding = -1;  // the number of the acquisition that it uses
};

struct Execution {
  std::size_t instruction = 0;  // the program's length: everything waits for everything
  std::size_t stream = 0;
  std::vector<Touch> touches;
};

struct Holding {
  std::size_t space = 0;
  std::size_t acquired = 0, released = 0;  // in the order of all that acquires and releases
};

struct Unrolled {
  std::vector<Execution> executions;
  std::vector<Holding> holdings;
  std::vector<std::string> not_held;  // operands that are used where their memory is not held
};

// `steps`: so many times everything behind the setup.
Unrolled unroll(const program::StepProgram& program, Placement placement, int steps = 1);

// Two executions that are not ordered, as text: "accumulate on communication and fill_zero on compute".
using Conflicts = std::vector<std::string>;

// By vector clocks, in one walk. At most one conflict for each pair of instructions.
Conflicts conflicts_by_clocks(const program::StepProgram& program, const Unrolled& unrolled);

// Whether memory that is used again counts where it is the same, or wherever it could be: whatever is acquired in a
// space may have the memory of anything that was released there.
enum class Reuse { same_bytes, anywhere };

// By reachability in the graph of waits, for every pair of executions. Takes the square of their number.
Conflicts conflicts_by_pairs(const program::StepProgram& program, const Unrolled& unrolled, Reuse reuse);

}  // namespace zeroplan::test
