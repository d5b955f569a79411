#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "executor/batches.hpp"
#include "executor/communicator/communicator.hpp"
#include "executor/rank.hpp"
#include "executor/storage/save_tensors.hpp"

// The state of a training in one file: the model's whole tensors by name, in fp32 (from the master copy where
// there is one), each followed by its optimizer states, and in the metadata the loss scale and the counts. So a
// run can go on at other data-parallel and tensor-parallel degrees, at another ZeRO stage and layout of batches.
// It is a safetensors file: "layers.0.mlp.up.weight", "layers.0.mlp.up.weight/momentum" ...
namespace zeroplan::executor {

// What must be the same for a run to go on: model, type, optimizer ... as text, for messages.
using TrainingIdentity = std::vector<std::pair<std::string, std::string>>;

// How far a run has come, beside its state.
struct RunPosition {
  std::int64_t steps = 0;  // taken, skipped ones included
  DataPosition data;
};

// Every rank writes a part of what it holds, as save_tensors says. All ranks call it, between steps. Throws
// DeviceError.
void save_checkpoint(const SavedFile& file, const TrainingIdentity& identity, const RunPosition& position,
                     Rank& rank, ControlPlane& world);

// Reads this rank's part and returns how far the run had come. All ranks call it; requires a rank that was set
// up. Throws ConfigurationError naming the file, the key or tensor, what was found and what was expected: other
// formats and versions, damage, values that are not finite.
RunPosition load_checkpoint(const std::string& path, const TrainingIdentity& identity, Rank& rank,
                            ControlPlane& world);

}  // namespace zeroplan::executor
