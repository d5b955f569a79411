#include "executor/batches.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "executor/permutation.hpp"
#include "planner/error.hpp"
#include "tests/support/command.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;
using zeroplan::test::TemporaryFolder;

namespace {

using Sequence = std::vector<std::int32_t>;  // its tokens and the last target

std::string written(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

DataSource in_order(const std::string& path) { return {std::make_shared<const TokenFile>(path), 0, false}; }

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
      taken({.sequence = 6, .micro_batch = 4, .gradient_accumulation = 3, .first_sequence = 12}, 1, make);
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
  const TemporaryFolder folder;
  const DataSource text =
      in_order(written(folder.file("text"), "abcdefg\xff"));  // two of three, and one token
  const auto make = [&](const BatchShape& shape) { return file_batches(text, shape, 256); };
  const auto sequences = taken({.sequence = 3, .micro_batch = 3}, 1, make);
  CHECK(sequences[0] == Sequence{'a', 'b', 'c', 'd'});
  CHECK(sequences[1] == Sequence{'d', 'e', 'f', 'g'});
  CHECK(sequences[2] == sequences[0]);
  CHECK(taken({.sequence = 7}, 1, make)[0].back() == 255);
  CHECK_THROWS_AS(file_batches(text, {.sequence = 8}, 256), ConfigurationError);
}

TEST_CASE("every pass through a shuffled file has each sequence once, in another order, whatever the ranks") {
  const TemporaryFolder folder;
  std::string content;
  for (int i = 0; i < 8 * 25 + 1; ++i) content += static_cast<char>(i);
  const std::string path = written(folder.file("text"), content);
  const DataSource source{std::make_shared<const TokenFile>(path), 7, true};
  const auto make = [&](const BatchShape& shape) { return file_batches(source, shape, 256); };
  const auto passes = taken({.sequence = 8, .micro_batch = 25}, 2, make);
  const std::vector<Sequence> first(passes.begin(), passes.begin() + 25);
  const std::vector<Sequence> second(passes.begin() + 25, passes.end());
  for (const std::vector<Sequence>& pass : {first, second}) {
    std::set<std::int32_t> begins;
    for (const Sequence& sequence : pass) begins.insert(sequence.front());
    CHECK(begins.size() == 25);
    CHECK(*begins.rbegin() == 8 * 24);
  }
  CHECK(first != second);
  const auto plain = taken({.sequence = 8, .micro_batch = 25}, 1, [&](const BatchShape& shape) {
    return file_batches({source.file, 7, false}, shape, 256);
  });
  CHECK(first != plain);
  CHECK(taken({.sequence = 8, .micro_batch = 1, .gradient_accumulation = 5, .data_parallel = 5}, 2, make) ==
        passes);
  CHECK(taken({.sequence = 8, .micro_batch = 25, .first_sequence = 25}, 1, make) == second);
  const DataSource other{source.file, 8, true};
  CHECK(taken({.sequence = 8, .micro_batch = 25}, 1,
              [&](const BatchShape& shape) { return file_batches(other, shape, 256); }) != first);
  CHECK(other.order(8) != source.order(8));
  CHECK(source.order(9) != source.order(8));
}

TEST_CASE("a permutation takes every place once, for sizes of all kinds, and leaves few where they were") {
  for (std::uint64_t size = 1; size <= 70; ++size) {
    for (const std::uint64_t key : {0U, 1U, 99U}) {
      const Permutation order(size, key);
      std::set<std::uint64_t> places;
      for (std::uint64_t i = 0; i < size; ++i) places.insert(order(i));
      CAPTURE(size);
      CHECK(places.size() == size);
      CHECK(*places.rbegin() == size - 1);
    }
  }
  constexpr std::uint64_t kSize = 100'003;
  const Permutation order(kSize, 5);
  std::vector<bool> taken_place(kSize);
  std::array<int, 10> of_first_tenth{};
  int stayed = 0;
  for (std::uint64_t i = 0; i < kSize; ++i) {
    const std::uint64_t place = order(i);
    REQUIRE(place < kSize);
    CHECK_FALSE(taken_place[place]);
    taken_place[place] = true;
    stayed += place == i ? 1 : 0;
    if (i < kSize / 10) ++of_first_tenth[place * 10 / kSize];
  }
  CHECK(stayed <= 8);  // of a random permutation 1 is expected
  for (const int count : of_first_tenth)
    CHECK(count == doctest::Approx(1000).epsilon(0.15));  // five deviations
  // Far beyond any table.
  const Permutation large(std::uint64_t{1} << 50, 5);
  CHECK(large(1) != large(2));
}

TEST_CASE("a token that the vocabulary does not have is named with its place") {
  const TemporaryFolder folder;
  const DataSource text = in_order(written(folder.file("text"),
                                           "abc\xff"
                                           "efg"));
  const auto source = file_batches(text, {.sequence = 2}, 128);
  std::vector<std::int32_t> tokens(2);
  source->next(tokens, tokens);
  CHECK_THROWS_WITH_AS(source->next(tokens, tokens),
                       doctest::Contains("has the token 255 as its token 3 (byte 3), expected one of the "
                                         "vocabulary: from 0 to 127"),
                       ConfigurationError);
}
