#pragma once

#include <cstdint>

#include "planner/describe/model/model.hpp"
#include "planner/describe/plan/plan.hpp"
#include "planner/program/step_program.hpp"

namespace zeroplan::program {

// The sizes of one micro-batch on one tensor-parallel rank.
struct Shapes {
  std::int64_t sequences = 0;  // micro-batch
  std::int64_t sequence = 0;
  std::int64_t tokens = 0;  // sequences x sequence
  std::int64_t hidden = 0;
  std::int64_t heads = 0;     // of this rank
  std::int64_t kv_heads = 0;  // of this rank
  std::int64_t head_dim = 0;
  std::int64_t norm_statistics = 1;  // fp32 values a norm keeps per row: mean and 1/deviation, or 1/rms
  DataType compute = DataType::fp32;
  bool dropout = false;
  bool in_place = true;                     // backward writes over activations that it no longer needs
  bool recompute_stops_early = false;       // after the last activation that backward needs
  bool sum_beside_weight_gradient = false;  // of input gradients over tensor-parallel ranks
};
Shapes make_shapes(const describe::Model& model, const describe::Plan& plan);

// The model's numbers as the kernels of this rank need them.
ModelConstants make_constants(const describe::Model& model, const describe::Plan& plan, RankPosition rank);

}  // namespace zeroplan::program
