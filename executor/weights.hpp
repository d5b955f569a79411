#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/communicator/communicator.hpp"
#include "executor/initialize.hpp"
#include "executor/rank.hpp"
#include "executor/storage/tensor_file.hpp"
#include "planner/program/weight_names.hpp"

namespace zeroplan::executor {

// The weights of a model as Hugging Face names and lays them out, in one safetensors file or in the files of an
// index. F32, F16 and BF16.
class WeightFiles {
 public:
  // `path`: a .safetensors file, an index (.safetensors.index.json), or a folder with model.safetensors or with
  // one. Throws ConfigurationError naming --weights, the files, and every tensor that is missing, has another
  // shape or type, or is not in the model.
  WeightFiles(const std::string& path, program::WeightNames names);

  // Every parameter's value, for Rank::initialize. A rank needs its own. Throws ConfigurationError naming a
  // tensor that has a value which is not finite.
  ParameterValue values() const;

 private:
  friend class WeightReader;
  struct Found {
    const MappedTensorFile* file = nullptr;
    const TensorEntry* tensor = nullptr;
  };
  Found find(const std::string& name) const;
  void open(const std::string& path);
  void require_complete() const;

  std::string source_;
  program::WeightNames names_;
  std::vector<std::unique_ptr<MappedTensorFile>> files_;
};

// Writes the weights in fp32 under these names, as save_tensors says. All ranks call it, between steps.
void export_weights(const std::string& path, const program::WeightNames& names, Rank& rank,
                    ControlPlane& world);

}  // namespace zeroplan::executor
