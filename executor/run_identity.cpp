#include "executor/run_identity.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "executor/error.hpp"

namespace zeroplan::executor {

namespace {

constexpr std::size_t kDigestBytes = 16;
constexpr std::size_t kFieldsShown = 3;

// Of a file: 64 blocks of 16 KiB are 1 MiB, and read in a moment also over a network.
constexpr std::int64_t kBlocks = 64;
constexpr std::int64_t kBlockBytes = 16 * kKiB;

class Digest {
 public:
  Digest() { crypto_generichash_init(&state_, nullptr, 0, kDigestBytes); }

  Digest& add(const void* bytes, std::size_t size) {
    crypto_generichash_update(&state_, static_cast<const unsigned char*>(bytes), size);
    return *this;
  }
  Digest& add(std::int64_t number) { return add(&number, sizeof number); }
  Digest& add(std::string_view text) {
    return add(static_cast<std::int64_t>(text.size())).add(text.data(), text.size());
  }

  std::string text() {
    std::array<unsigned char, kDigestBytes> bytes{};
    crypto_generichash_final(&state_, bytes.data(), bytes.size());
    std::string digits;
    for (const unsigned char byte : bytes) digits += fmt::format("{:02x}", byte);
    return digits;
  }

 private:
  crypto_generichash_state state_{};
};

class File {
 public:
  explicit File(const std::string& path)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

const std::string* value_of(const RunIdentity& identity, const std::string& name) {
  const auto found = std::find_if(identity.begin(), identity.end(),
                                  [&](const IdentityField& field) { return field.name == name; });
  return found == identity.end() ? nullptr : &found->value;
}

std::string shown(const std::string* value) {
  constexpr std::size_t kLongest = 40;
  if (value == nullptr) return "none";
  return value->size() <= kLongest ? *value : value->substr(0, kLongest) + "...";
}

std::string packed(const RunIdentity& identity) {
  std::string text;
  for (const IdentityField& field : identity) {
    text.append(field.name).push_back('\0');
    text.append(field.value).push_back('\0');
  }
  return text;
}

RunIdentity unpacked(std::string_view text) {
  RunIdentity identity;
  const auto next = [&] {
    const std::size_t end = text.find('\0');
    if (end == std::string_view::npos) throw CommunicationError("the identity of a rank is cut off");
    std::string word(text.substr(0, end));
    text.remove_prefix(end + 1);
    return word;
  };
  while (!text.empty()) {
    std::string name = next();
    identity.push_back({.name = std::move(name), .value = next()});
  }
  return identity;
}

}  // namespace

std::string difference_text(std::int64_t rank, const RunIdentity& theirs, const RunIdentity& of_rank_0) {
  std::string text;
  std::size_t count = 0;
  const auto add = [&](const std::string& name, const std::string* other, const std::string* own) {
    if (++count > kFieldsShown) return;
    text += fmt::format("{}another {} ({}; rank 0 has {})", count == 1 ? "" : " and ", name, shown(other),
                        shown(own));
  };
  for (const IdentityField& field : of_rank_0) {
    const std::string* other = value_of(theirs, field.name);
    if (other == nullptr || *other != field.value) add(field.name, other, &field.value);
  }
  for (const IdentityField& field : theirs) {
    if (value_of(of_rank_0, field.name) == nullptr) add(field.name, &field.value, nullptr);
  }
  if (count == 0) return {};
  if (count > kFieldsShown) text += fmt::format(" and {} more that differ", count - kFieldsShown);
  return fmt::format("rank {} has {}", rank, text);
}

void require_same_identity(ControlPlane& world, const RunIdentity& identity) {
  const std::string own = packed(identity);
  // Lengths first, as gathering takes the same number of bytes from all.
  const std::vector<std::size_t> length_of = gathered(world, own.size());
  const std::size_t longest = *std::max_element(length_of.begin(), length_of.end());
  std::string padded = own;
  padded.resize(longest);
  const std::vector<char> all = gathered(world, std::span<const char>(padded));
  const auto of_rank = [&](std::int64_t rank) {
    const auto r = static_cast<std::size_t>(rank);
    return unpacked(std::string_view(all.data(), all.size()).substr(r * longest, length_of[r]));
  };
  const RunIdentity of_rank_0 = of_rank(0);
  std::string text;
  std::int64_t others = 0;
  for (std::int64_t rank = 1; rank < world.size(); ++rank) {
    const std::string difference = difference_text(rank, of_rank(rank), of_rank_0);
    if (difference.empty()) continue;
    if (text.empty()) {
      text = difference;
    } else {
      ++others;
    }
  }
  if (text.empty()) return;
  if (others > 0) text += fmt::format("; so it is with {} more", others);
  throw CommunicationError(text + ": start every rank of a run with the same command and files");
}

std::string digest_of(std::string_view bytes) { return Digest().add(bytes).text(); }

std::string file_digest(const std::string& path) {
  const File file(path);
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  const auto size = static_cast<std::int64_t>(status.st_size);
  Digest digest;
  digest.add(size);
  std::vector<char> block(static_cast<std::size_t>(kBlockBytes));
  // The first block, the last one, and others at equal distances; a short file whole.
  const std::int64_t last = std::max<std::int64_t>(0, size - kBlockBytes);
  const std::int64_t blocks = std::min(kBlocks, div_ceil(last, kBlockBytes) + 1);
  for (std::int64_t i = 0; i < blocks; ++i) {
    // Quotient and remainder apart: a file's size times 64 need not fit.
    const std::int64_t gaps = std::max<std::int64_t>(1, blocks - 1);
    const std::int64_t offset = last / gaps * i + last % gaps * i / gaps;
    const ssize_t got = ::pread(file.get(), block.data(), block.size(), offset);
    if (got < 0) return {};
    digest.add(block.data(), static_cast<std::size_t>(got));
  }
  return digest.text();
}

std::string digest_of(const program::StepProgram& program) {
  Digest digest;
  for (const program::Buffer& buffer : program.buffers) {
    digest.add(buffer.name)
        .add(static_cast<std::int64_t>(buffer.type))
        .add(static_cast<std::int64_t>(buffer.category))
        .add(static_cast<std::int64_t>(buffer.space))
        .add(buffer.parent)
        .add(buffer.first_layer)
        .add(buffer.instances)
        .add(buffer.slots)
        .add(buffer.elements)
        .add(buffer.offset)
        .add(buffer.bytes);
  }
  for (const program::Instruction& instruction : program.code) {
    digest.add(static_cast<std::int64_t>(instruction.op))
        .add(static_cast<std::int64_t>(instruction.group))
        .add(static_cast<std::int64_t>(instruction.stream))
        .add(instruction.flags)
        .add(std::int64_t{instruction.extra});
    for (const std::int64_t dim : instruction.dims) digest.add(dim);
    for (const program::Operand& operand : instruction.operands) {
      digest.add(operand.buffer).add(operand.layer_offset).add(operand.iteration_offset);
    }
  }
  for (const program::TensorPlacement& tensor : program.tensors) {
    digest.add(tensor.name)
        .add(static_cast<std::int64_t>(tensor.unit))
        .add(tensor.outputs)
        .add(tensor.inputs)
        .add(tensor.copies)
        .add(tensor.offset);
  }
  return digest.text();
}

}  // namespace zeroplan::executor
