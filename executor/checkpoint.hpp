#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "executor/batches.hpp"
#include "executor/communicator/communicator.hpp"
#include "executor/rank.hpp"

// The state of a training in one file: weights in fp32 (the master copy where there is one), optimizer
// states, loss scale and counts. Vectors are stored whole, without partitions and padding, so a run can go on
// at another data-parallel degree, ZeRO stage or layout of batches, with the same bits.
//
//   header   text lines `key value`, then zeros up to a multiple of 4096 bytes
//   arrays   fp32, for each tensor-parallel rank, unit and layer: the weights, then each optimizer state
namespace zeroplan::executor {

// What must be the same for a run to go on: model, type, optimizer ... as text, for messages.
using TrainingIdentity = std::vector<std::pair<std::string, std::string>>;

// How far a run has come, beside its state.
struct RunPosition {
  std::int64_t steps = 0;  // taken, skipped ones included
  DataPosition data;
};

// Every rank writes what it owns, into a new file beside `path` that takes its place when all are done: whole
// or not at all. All ranks call it, between steps, and must see the same file system. Throws DeviceError.
void save_checkpoint(const std::string& path, const TrainingIdentity& identity, const RunPosition& position,
                     Rank& rank, Communicator& world);

// Reads this rank's part and returns how far the run had come. Requires a rank that was set up. Throws
// ConfigurationError naming --resume, the key, what was found and what was expected.
RunPosition load_checkpoint(const std::string& path, const TrainingIdentity& identity, Rank& rank);

}  // namespace zeroplan::executor
