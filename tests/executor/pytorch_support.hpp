#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/executor/training_support.hpp"

// Models whose loss and gradients PyTorch worked out (tests/reference/pytorch/make_vectors.py), and how ours are
// held against them.
namespace zeroplan::executor::test {

inline constexpr std::int64_t kPytorchVocabulary = 37;
inline constexpr double kPytorchTolerance = 1e-5;

using PytorchVectors = std::map<TensorName, std::vector<double>>;
PytorchVectors read_pytorch_vectors(const std::string& file);

struct PytorchReference {
  describe::Model model;
  PytorchVectors gradients;
  double tolerance = kPytorchTolerance;  // of a tensor's largest gradient
};

// Of the global batch.
struct Division {
  std::int64_t ranks = 1, accumulation = 1;
};
describe::Plan pytorch_plan(Division division, std::int64_t tensor_parallel);

// The weights and tokens that the vectors were made with, and a rate of 0.
TrainingOptions pytorch_options();
// For the steps of `training`, which has their number and the settings of PyTorch's AdamW.
TrainingOptions pytorch_training_options(const PytorchVectors& training);

// The largest difference of any tensor that the reference has, relative to the largest value of the tensor;
// checks each.
double largest_pytorch_difference(const std::map<TensorName, WholeTensor>& ours,
                                  const PytorchVectors& reference, double tolerance = kPytorchTolerance);

// One step, every gradient. Returns the largest difference.
double check_pytorch_gradients(const PytorchReference& reference, const describe::Plan& plan);

}  // namespace zeroplan::executor::test
