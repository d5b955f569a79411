#include "executor/batches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "executor/random.hpp"
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
    const std::int64_t step = shape_.first_step + passes_ / shape_.gradient_accumulation;
    ++passes_;
    const std::int64_t first =
        step * shape_.global_batch() +
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

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw ConfigurationError(Problem{"--data", 0, "", fmt::format("{} {}", zeroplan::quoted(path), why)});
}

std::vector<unsigned char> read_bytes(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) refuse(path, "is a folder, expected a file");
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(path, fmt::format("cannot be read: {}", std::strerror(errno)));
  return {std::istreambuf_iterator<char>(file), {}};
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

std::unique_ptr<BatchSource> file_batches(const BatchShape& shape, std::int64_t vocabulary,
                                          const std::string& path) {
  constexpr std::int64_t kByteValues = 256;
  if (vocabulary < kByteValues) {
    throw ConfigurationError(
        Problem{"--data", 0, "",
                fmt::format("the model has a vocabulary of {}, expected at least {} for bytes as tokens",
                            vocabulary, kByteValues)});
  }
  std::vector<unsigned char> text = read_bytes(path);
  const auto bytes = static_cast<std::int64_t>(text.size());
  if (bytes <= shape.sequence) {
    refuse(path, fmt::format("has {} bytes, expected more than one sequence of {}", bytes, shape.sequence));
  }
  const std::int64_t sequences = (bytes - 1) / shape.sequence;
  const std::int64_t length = shape.sequence;
  return numbered(shape, [text = std::move(text), sequences, length](std::int64_t sequence,
                                                                     std::vector<std::int32_t>& tokens) {
    const auto start = static_cast<std::size_t>(sequence % sequences * length);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = text[start + i];
  });
}

}  // namespace zeroplan::executor
