#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "executor/interpreter.hpp"

namespace zeroplan::executor {

// Which sequences of the global batch a data-parallel rank takes. Sequences are numbered through the whole
// run: step by step, rank by rank, pass by pass. So ranks and accumulation can be exchanged for each other,
// and a run that is resumed at another data-parallel degree goes on with the sequences that come next.
struct BatchShape {
  std::int64_t sequence = 0;  // tokens of one
  std::int64_t micro_batch = 1;
  std::int64_t gradient_accumulation = 1;
  std::int64_t data_parallel = 1;
  std::int64_t data_parallel_rank = 0;
  std::int64_t first_step = 0;  // steps that were taken already

  std::int64_t global_batch() const { return micro_batch * gradient_accumulation * data_parallel; }
};

// Sequences drawn from `seed`: in each, the next token follows from the last by a rule drawn once, three
// times out of four, and is any token otherwise. So there is something to learn, and no file is needed.
std::unique_ptr<BatchSource> seeded_batches(const BatchShape& shape, std::int64_t vocabulary,
                                            std::uint64_t seed);

// The bytes of a file as tokens, sequence after sequence, from the start again at its end. Throws
// ConfigurationError naming --data when the file cannot be read, is shorter than a sequence and one token, or
// the vocabulary has fewer than 256 tokens.
std::unique_ptr<BatchSource> file_batches(const BatchShape& shape, std::int64_t vocabulary,
                                          const std::string& path);

}  // namespace zeroplan::executor
