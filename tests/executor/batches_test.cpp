#include "executor/batches.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <vector>

#include "planner/error.hpp"
#include "tests/support/command.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;

namespace {

using Sequence = std::vector<std::int32_t>;  // its tokens and the last target

// All sequences of `steps` steps in the order of the global batch.
std::vector<Sequence> taken(const BatchShape& all, std::int64_t steps,
                            const std::function<std::unique_ptr<BatchSource>(const BatchShape&)>& make) {
  std::vector<Sequence> sequences(static_cast<std::size_t>(steps * all.global_batch()));
  const auto tokens = static_cast<std::size_t>(all.micro_batch * all.sequence);
  for (BatchShape shape = all; shape.data_parallel_rank < all.data_parallel; ++shape.data_parallel_rank) {
    const std::unique_ptr<BatchSource> source = make(shape);
    for (std::int64_t step = 0; step < steps; ++step) {
      for (std::int64_t pass = 0; pass < all.gradient_accumulation; ++pass) {
        std::vector<std::int32_t> inputs(tokens);
        std::vector<std::int32_t> targets(tokens);
        source->next(inputs, targets);
        for (std::int64_t i = 0; i < all.micro_batch; ++i) {
          const std::int64_t place =
              ((step * all.data_parallel + shape.data_parallel_rank) * all.gradient_accumulation + pass) *
                  all.micro_batch +
              i;
          const auto begin = inputs.begin() + i * all.sequence;
          Sequence sequence(begin, begin + all.sequence);
          for (std::int64_t t = 0; t + 1 < all.sequence; ++t) {
            CHECK(targets[static_cast<std::size_t>(i * all.sequence + t)] == begin[t + 1]);
          }
          sequence.push_back(targets[static_cast<std::size_t>((i + 1) * all.sequence - 1)]);
          sequences[static_cast<std::size_t>(place)] = std::move(sequence);
        }
      }
    }
  }
  return sequences;
}

}  // namespace

TEST_CASE("ranks, passes and sequences of a micro-batch can be exchanged for each other") {
  const auto make = [](const BatchShape& shape) { return seeded_batches(shape, 37, 5); };
  const auto reference = taken({.sequence = 6, .micro_batch = 12}, 2, make);
  CHECK(taken({.sequence = 6, .micro_batch = 2, .gradient_accumulation = 3, .data_parallel = 2}, 2, make) ==
        reference);
  CHECK(taken({.sequence = 6, .data_parallel = 12}, 2, make) == reference);
  const auto second =
      taken({.sequence = 6, .micro_batch = 4, .gradient_accumulation = 3, .first_step = 1}, 1, make);
  CHECK(second == std::vector<Sequence>(reference.begin() + 12, reference.end()));
}

TEST_CASE("seeded tokens are of the vocabulary, and mostly follow from the one before") {
  constexpr std::int64_t kVocabulary = 11;
  const auto sequences = taken({.sequence = 400, .micro_batch = 4}, 1,
                               [](const BatchShape& shape) { return seeded_batches(shape, kVocabulary, 3); });
  std::vector<std::vector<int>> followers(kVocabulary, std::vector<int>(kVocabulary));
  int pairs = 0;
  for (const Sequence& sequence : sequences) {
    for (std::size_t i = 0; i + 1 < sequence.size(); ++i, ++pairs) {
      REQUIRE(sequence[i] >= 0);
      REQUIRE(sequence[i] < kVocabulary);
      ++followers[static_cast<std::size_t>(sequence[i])][static_cast<std::size_t>(sequence[i + 1])];
    }
  }
  int usual = 0;
  for (const std::vector<int>& counts : followers) usual += *std::max_element(counts.begin(), counts.end());
  // Three of four, and of the fourth one in eleven.
  CHECK(static_cast<double>(usual) / pairs == doctest::Approx(0.75 + 0.25 / kVocabulary).epsilon(0.05));
  CHECK(sequences[0] != sequences[1]);
}

TEST_CASE("bytes of a file are the tokens, from the start again at its end") {
  const zeroplan::test::TemporaryFolder folder;
  const std::string path = folder.file("text");
  std::ofstream(path, std::ios::binary) << "abcdefg\xff";  // two sequences of three, and one token
  const auto make = [&](const BatchShape& shape) { return file_batches(shape, 256, path); };
  const auto sequences = taken({.sequence = 3, .micro_batch = 3}, 1, make);
  CHECK(sequences[0] == Sequence{'a', 'b', 'c', 'd'});
  CHECK(sequences[1] == Sequence{'d', 'e', 'f', 'g'});
  CHECK(sequences[2] == sequences[0]);
  CHECK(taken({.sequence = 7}, 1, make)[0].back() == 255);
  CHECK_THROWS_AS(file_batches({.sequence = 8}, 256, path), ConfigurationError);
  CHECK_THROWS_AS(file_batches({.sequence = 3}, 255, path), ConfigurationError);
  CHECK_THROWS_AS(file_batches({.sequence = 3}, 256, folder.file("absent")), ConfigurationError);
  CHECK_THROWS_AS(file_batches({.sequence = 3}, 256, folder.path()), ConfigurationError);
}
