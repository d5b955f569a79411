#pragma once

#include <string_view>
#include <vector>

#include "planner/describe/model/model.hpp"
#include "planner/describe/plan/plan.hpp"
#include "planner/program/step_program.hpp"

namespace zeroplan::program {

// A parameter tensor as one tensor-parallel rank holds it.
struct LocalTensor {
  std::string_view name;
  Elements outputs = 0;
  Elements inputs = 1;
  std::int64_t copies = 1;
  Elements whole_outputs = 0, whole_inputs = 1;  // of all ranks together, without padding
  bool replicated = false;                       // every tensor-parallel rank holds the same
  bool divides_outputs = false, divides_inputs = false;
  Elements offset = 0;  // first element inside its unit

  Elements elements() const { return outputs * inputs * copies; }
};

// The parameters that are gathered, reduced and updated together: one layer, the embedding, or the head. On a
// rank they are one flat vector: matrices that differ between tensor-parallel ranks, then vectors that
// differ, then what all ranks hold alike. ZeRO divides that vector into data_parallel equal partitions, the
// last ones padded.
struct Unit : UnitPlacement {
  describe::ParameterGroup::Kind kind = describe::ParameterGroup::Kind::dense_layer;
  std::vector<LocalTensor> tensors;
  Elements distinct = 0;  // of its elements, not held by the other tensor-parallel ranks; they come first
  Elements owned_distinct = 0;
  Elements working = 0;   // most that is whole at once; = elements but for opaque units
  Elements factored = 0;  // rows + columns of matrices and all of vectors: a factored second moment

  // Set by the ZeRO policy, as the buffers and groups of its placement are.
  BufferId weights = kNoBuffer;           // whole, as kernels read them
  BufferId weight_gradients = kNoBuffer;  // whole, as kernels write them

  // Nothing is computed with it here: `params=` models, vision towers.
  bool is_opaque() const { return kind == describe::ParameterGroup::Kind::extra; }
  // The tensor called `name`, or nullptr. Searches from where the last search ended: kernels ask in order.
  const LocalTensor* find(std::string_view name) const;

 private:
  mutable std::size_t next_ = 0;
};

// Embedding, layers, head, extra, in the order of the forward pass, and the parameters of the whole model.
struct Units {
  std::vector<Unit> units;
  Elements parameters = 0;
  Elements active_parameters = 0;  // that one token uses
};

// `partitions`: how many ZeRO makes of a unit.
Units make_units(const describe::Model& model, const describe::Plan& plan, std::int64_t partitions,
                 RankPosition rank);

// What one tensor-parallel rank holds of `rows` of a vocabulary, or of a head's outputs, padding included.
Elements local_rows(Elements rows, const describe::Plan& plan);

}  // namespace zeroplan::program
