#include "executor/batches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "executor/permutation.hpp"
#include "executor/random.hpp"
#include "executor/run_identity.hpp"
#include "planner/error.hpp"

namespace zeroplan::executor {

namespace {

// Numbers the sequences; what is in one is its function's affair.
template <class Fill>
class NumberedBatches final : public BatchSource {
 public:
  NumberedBatches(const BatchShape& shape, Fill fill)
      : shape_(shape), fill_(std::move(fill)), tokens_(static_cast<std::size_t>(shape.sequence + 1)) {}

  void next(std::span<std::int32_t> tokens, std::span<std::int32_t> targets) override {
    const std::int64_t pass = passes_ % shape_.gradient_accumulation;
    const std::int64_t step = passes_ / shape_.gradient_accumulation;
    ++passes_;
    const std::int64_t first =
        shape_.first_sequence + step * shape_.global_batch() +
        (shape_.data_parallel_rank * shape_.gradient_accumulation + pass) * shape_.micro_batch;
    const auto length = static_cast<std::size_t>(shape_.sequence);
    for (std::int64_t i = 0; i < shape_.micro_batch; ++i) {
      fill_(first + i, tokens_);
      const std::size_t start = static_cast<std::size_t>(i) * length;
      std::copy_n(tokens_.begin(), length, tokens.begin() + static_cast<std::ptrdiff_t>(start));
      std::copy_n(tokens_.begin() + 1, length, targets.begin() + static_cast<std::ptrdiff_t>(start));
    }
  }

 private:
  BatchShape shape_;
  Fill fill_;
  std::vector<std::int32_t> tokens_;  // one more than a sequence: the last target
  std::int64_t passes_ = 0;
};

template <class Fill>
std::unique_ptr<BatchSource> numbered(const BatchShape& shape, Fill fill) {
  return std::make_unique<NumberedBatches<Fill>>(shape, std::move(fill));
}

[[noreturn]] void refuse(const TokenFile& file, const std::string& why) {
  throw ConfigurationError(
      Problem{"--data", 0, "", fmt::format("{} {}", zeroplan::quoted(file.path()), why)});
}

}  // namespace

std::unique_ptr<BatchSource> seeded_batches(const BatchShape& shape, std::int64_t vocabulary,
                                            std::uint64_t seed) {
  const auto size = static_cast<std::uint64_t>(vocabulary);
  return numbered(shape, [size, seed](std::int64_t sequence, std::vector<std::int32_t>& tokens) {
    std::uint64_t state = mix(seed ^ mix(static_cast<std::uint64_t>(sequence)));
    std::uint64_t token = state % size;
    for (std::int32_t& out : tokens) {
      out = static_cast<std::int32_t>(token);
      state = mix(state);
      const bool follows = (state >> 62) != 0;
      token = (follows ? mix(seed ^ hash_of("follows") ^ token) : state) % size;
    }
  });
}

std::unique_ptr<BatchSource> file_batches(const DataSource& source, const BatchShape& shape,
                                          std::int64_t vocabulary) {
  const Elements tokens_there = source.file->tokens();
  const std::int64_t length = shape.sequence;
  if (tokens_there <= length) {
    refuse(*source.file, fmt::format("has {} tokens of type {}, expected more than one sequence of {}",
                                     tokens_there, name_of(source.file->type()), length));
  }
  const std::int64_t sequences = (tokens_there - 1) / length;
  return numbered(shape, [source, sequences, length, vocabulary](std::int64_t sequence,
                                                                 std::vector<std::int32_t>& tokens) {
    const std::int64_t pass = sequence / sequences;
    std::int64_t place = sequence % sequences;
    if (source.shuffle) {
      const Permutation order(static_cast<std::uint64_t>(sequences),
                              mix(source.seed ^ mix(static_cast<std::uint64_t>(pass))));
      place = static_cast<std::int64_t>(order(static_cast<std::uint64_t>(place)));
    }
    source.file->read(place * length, tokens);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] >= 0 && tokens[i] < vocabulary) continue;
      const Elements at = place * length + static_cast<Elements>(i);
      refuse(*source.file,
             fmt::format(
                 "has the token {} as its token {} (byte {}), expected one of the vocabulary: from 0 to {}. "
                 "Tokens are read as {}; --data-type says otherwise",
                 tokens[i], at, source.file->byte_of(at), vocabulary - 1, name_of(source.file->type())));
    }
  });
}

std::unique_ptr<BatchSource> make_batches(const DataSource& source, const BatchShape& shape,
                                          std::int64_t vocabulary) {
  if (source.file != nullptr) return file_batches(source, shape, vocabulary);
  return seeded_batches(shape, vocabulary, source.seed);
}

std::string DataSource::order(std::int64_t sequence) const {
  if (file == nullptr) return fmt::format("drawn from seed {}, sequences of {}", seed, sequence);
  const std::string content = fmt::format("{} tokens of type {} ({}), sequences of {}", file->tokens(),
                                          name_of(file->type()), file_digest(file->path()), sequence);
  return shuffle ? fmt::format("{}, shuffled by seed {}", content, seed) : content;
}

}  // namespace zeroplan::executor
