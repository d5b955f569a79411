#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "executor/interpreter.hpp"
#include "executor/token_file.hpp"

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
  std::int64_t first_sequence = 0;  // so many were taken already, by all ranks

  std::int64_t global_batch() const { return micro_batch * gradient_accumulation * data_parallel; }
};

// Where a run is in its data: what a checkpoint keeps of it. A run goes on behind `sequences` where its `order`
// is the same; where it is not, other sequences come first and it begins at the first of them.
struct DataPosition {
  std::int64_t sequences = 0;
  std::string order;  // one line of text: which sequence comes when

  std::int64_t resumed_in(std::string_view other_order) const { return other_order == order ? sequences : 0; }
};

// Tokens drawn from a seed, or those of a file.
struct DataSource {
  std::shared_ptr<const TokenFile> file;  // nullptr: drawn from `seed`
  std::uint64_t seed = 0;
  bool shuffle = true;  // of a file: every pass through it in an order of its own, drawn from `seed`

  // Of sequences so long: differs where the sequences or their order differ.
  std::string order(std::int64_t sequence) const;
};

// Throws ConfigurationError naming --data when the file has less than one sequence and a token.
std::unique_ptr<BatchSource> make_batches(const DataSource& source, const BatchShape& shape,
                                          std::int64_t vocabulary);

// Sequences drawn from `seed`: in each, the next token follows from the last by a rule drawn once, three
// times out of four, and is any token otherwise. So there is something to learn, and no file is needed.
std::unique_ptr<BatchSource> seeded_batches(const BatchShape& shape, std::int64_t vocabulary,
                                            std::uint64_t seed);

// The file's sequences, each followed by the token that the last target is; those of a pass in the file's order
// or shuffled, then the next pass. What is left behind the last whole sequence is not used. `next` throws
// ConfigurationError naming --data and the place of a token that the vocabulary does not have.
std::unique_ptr<BatchSource> file_batches(const DataSource& source, const BatchShape& shape,
                                          std::int64_t vocabulary);

}  // namespace zeroplan::executor
