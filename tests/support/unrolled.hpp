#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "planner/program/step_program.hpp"

// Runs a step program the slow way, one instruction after another through every repeat: the second opinion on
// the planner's algebra.
namespace zeroplan::test {

// Calls visit(index, instruction, layer, iteration, phase) for each instruction that is executed, in order.
void for_each_executed(const program::StepProgram& program,
                       const std::function<void(std::size_t, const program::Instruction&, std::int64_t layer,
                                                std::int64_t iteration, program::Phase)>& visit);

// Which instance of its buffer an operand means at `layer` and `iteration`.
std::int64_t instance_of(const program::StepProgram& program, program::Operand operand, std::int64_t layer,
                         std::int64_t iteration = 0);

// Calls visit(buffer, instance, acquires) for each instance that a memory instruction takes or gives back, in its order;
// never for other instructions.
void for_each_taken(
    const program::StepProgram& program, const program::Instruction& instruction, std::int64_t layer,
    std::int64_t iteration,
    const std::function<void(program::BufferId, std::int64_t instance, bool acquires)>& visit);

// What an arena with a stack sees: every buffer instance that is held, in order of acquisition.
class Arena {
 public:
  explicit Arena(const program::StepProgram& program) : program_(program) {}

  // Applies a memory instruction. Throws std::runtime_error when an instance is acquired twice, or a release
  // is not of the instance acquired last (host buffers have a stack of their own).
  void apply(const program::Instruction& instruction, std::int64_t layer, std::int64_t iteration = 0);
  bool holds(program::BufferId buffer, std::int64_t instance) const;

  Bytes device_bytes() const { return device_bytes_; }
  Bytes host_bytes() const { return host_bytes_; }
  std::size_t held() const { return device_.size() + host_.size(); }

 private:
  using Item = std::pair<program::BufferId, std::int64_t>;
  void acquire(Item item);
  void release(Item item);

  const program::StepProgram& program_;
  std::vector<Item> device_, host_;
  Bytes device_bytes_ = 0, host_bytes_ = 0;
};

}  // namespace zeroplan::test
