#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "executor/communicator/control_plane.hpp"
#include "planner/program/step_program.hpp"

// What a run is. Ranks are processes that were started apart from each other: with another seed, rate or plan
// they would train apart and say nothing of it.
namespace zeroplan::executor {

// A digest, or a value short enough to be read: what a message shows.
struct IdentityField {
  std::string name;  // "seed"
  std::string value;

  bool operator==(const IdentityField&) const = default;
};

// What must be the same on every rank of a run, in an order in which differences are to be told.
using RunIdentity = std::vector<IdentityField>;

// "rank 1 has another seed (9; rank 0 has 1) and another zero_stage (2; rank 0 has 1)", the first three; empty
// where they are the same.
std::string difference_text(std::int64_t rank, const RunIdentity& theirs, const RunIdentity& of_rank_0);

// Throws CommunicationError with one text on every rank where they do not all have rank 0's identity. For
// launchers whose processes find each other without asking what they are. All ranks of `world` call it first.
void require_same_identity(ControlPlane& world, const RunIdentity& identity);

// 16 bytes of BLAKE2b as hexadecimal digits.
std::string digest_of(std::string_view bytes);

// Of a regular file: of its size and of blocks spread over it, so that hundreds of gigabytes cost no more
// than a few, and its name is not part of it. Files that differ between those blocks alone are not told
// apart. Empty where the file cannot be read or is not a regular one.
std::string file_digest(const std::string& path);

// Of all that a rank would run.
std::string digest_of(const program::StepProgram& program);

}  // namespace zeroplan::executor
