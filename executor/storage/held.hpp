#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "executor/rank.hpp"
#include "executor/storage/placement.hpp"

// What a rank holds of the model's state between steps.
namespace zeroplan::executor {

// One flat vector: the weights or a state of one layer of a unit.
struct HeldVector {
  std::size_t unit = 0;
  std::int64_t layer = 0;
  std::int64_t state = -1;  // -1: the weights
};

// Elements [begin, end) of a vector, which `tensor` holds from its first element on.
struct Held {
  Tensor tensor;
  Elements begin = 0, end = 0;
};

std::int64_t states_of(const program::UnitPlacement& unit);

// By unit and layer: the weights, then each state.
void for_each_vector(const program::StepProgram& program,
                     const std::function<void(const HeldVector&)>& visit);

// What this rank holds of the weights in the type that it computes in, and of any vector where it is kept most
// exactly: the master copy of the weights where there is one.
Held as_computed(const HeldVector& vector, Rank& rank);
Held most_exact(const HeldVector& vector, Rank& rank);

// The elements that this rank writes where every element is written once by its tensor-parallel group: its
// partition, or where all data-parallel ranks hold the same an equal share.
std::pair<Elements, Elements> own_share(const Held& held, const HeldVector& vector,
                                        const program::StepProgram& program);

// Visits a strip in fp32, block by block: elements of it done before, values. `block` is scratch.
void write_blocks(Device& device, const Held& held, const Strip& strip, std::vector<float>& block,
                  const std::function<void(Elements done, std::span<const float> values)>& visit);

}  // namespace zeroplan::executor
