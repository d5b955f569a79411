#include "executor/token_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "planner/error.hpp"

namespace zeroplan::executor {

namespace {

// llm.c, llmc/dataloader.h and dev/data/data_common.py.
constexpr Bytes kLlmcHeaderBytes = 1024;
constexpr std::int32_t kLlmcMagic16 = 20240520, kLlmcMagic32 = 20240801;

// Megatron-LM, megatron/core/datasets/indexed_dataset.py: magic, version (uint64), type of an element (uint8).
constexpr std::string_view kMegatronMagic{"MMIDIDX\0\0", 9};

// What the system may map around a page that is touched.
constexpr Bytes kNeighbourhood = 2 * kMiB;

std::optional<TokenType> megatron_type(const std::string& path) {
  std::ifstream index(std::filesystem::path(path).replace_extension(".idx"), std::ios::binary);
  std::array<char, kMegatronMagic.size() + sizeof(std::uint64_t) + 1> head{};
  if (!index.read(head.data(), head.size())) return std::nullopt;
  if (std::string_view(head.data(), kMegatronMagic.size()) != kMegatronMagic) return std::nullopt;
  switch (static_cast<unsigned char>(head.back())) {
    case 1:
      return TokenType::bytes;
    case 4:
      return TokenType::int32;
    case 8:
      return TokenType::uint16;
    default:
      return TokenType::automatic;  // one that holds no tokens for us
  }
}

template <class T>
void copy_tokens(const std::byte* from, std::span<std::int32_t> out) {
  for (std::int32_t& token : out) {
    T value{};
    std::memcpy(&value, from, sizeof value);
    from += sizeof value;
    token = static_cast<std::int32_t>(value);
  }
}

}  // namespace

std::string_view name_of(TokenType type) { return token_type_names()[static_cast<std::size_t>(type)]; }

const std::vector<std::string>& token_type_names() {
  static const std::vector<std::string> names{"auto", "bytes", "uint16", "int32"};
  return names;
}

TokenFile::TokenFile(const std::string& path, TokenType type) : path_(path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
  if (S_ISDIR(status.st_mode)) refuse("is a folder, expected a file");
  // A device or a pipe has no length, and reading it may never end.
  if (!S_ISREG(status.st_mode)) refuse("is no regular file; tokens are read from a file, again and again");
  file_bytes_ = status.st_size;
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
  try {
    find_format(type);
    map();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

TokenFile::~TokenFile() {
  if (data_ != nullptr) ::munmap(data_, static_cast<std::size_t>(file_bytes_));
  ::close(descriptor_);
}

void TokenFile::refuse(const std::string& why) const {
  throw ConfigurationError(Problem{"--data", 0, "", fmt::format("{} {}", zeroplan::quoted(path_), why)});
}

void TokenFile::find_format(TokenType asked) {
  std::array<std::int32_t, 3> llmc{};
  if (file_bytes_ >= kLlmcHeaderBytes &&
      ::pread(descriptor_, llmc.data(), sizeof llmc, 0) != static_cast<ssize_t>(sizeof llmc)) {
    refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
  }
  const bool has_llmc_header = llmc[0] == kLlmcMagic16 || llmc[0] == kLlmcMagic32;
  if (asked != TokenType::automatic) {
    type_ = asked;
  } else if (has_llmc_header) {
    type_ = llmc[0] == kLlmcMagic16 ? TokenType::uint16 : TokenType::int32;
    header_bytes_ = kLlmcHeaderBytes;
  } else if (const std::optional<TokenType> type = megatron_type(path_)) {
    if (*type == TokenType::automatic) {
      refuse(
          "has an index beside it (.idx) whose type is neither uint8, int32 nor uint16; --data-type says "
          "what "
          "its tokens are");
    }
    type_ = *type;
  } else {
    type_ = path_.ends_with(".bin") ? TokenType::uint16 : TokenType::bytes;
  }
  token_bytes_ = type_ == TokenType::int32 ? 4 : type_ == TokenType::uint16 ? 2 : 1;
  const Bytes content = file_bytes_ - header_bytes_;
  if (content % token_bytes_ != 0) {
    refuse(
        fmt::format("has {} bytes{}, expected a multiple of {} for tokens of type {}; --data-type says "
                    "otherwise",
                    content, header_bytes_ > 0 ? " behind its header" : "", token_bytes_, name_of(type_)));
  }
  tokens_ = content / token_bytes_;
  if (header_bytes_ > 0 && llmc[2] != tokens_) {
    refuse(
        fmt::format("says in its header that {} tokens follow, and {} do: it is damaged", llmc[2], tokens_));
  }
}

void TokenFile::map() {
  if (file_bytes_ == 0) return;
  const auto bytes = static_cast<std::size_t>(file_bytes_);
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor_, 0);
  if (mapped == MAP_FAILED) refuse(fmt::format("cannot be mapped: {}", std::strerror(errno)));
  data_ = static_cast<std::byte*>(mapped);
}

void TokenFile::read(Elements first, std::span<std::int32_t> out) const {
  const Bytes begin = byte_of(first);
  const Bytes end = byte_of(first + static_cast<Elements>(out.size()));
  // Reading a page that is no longer there would end the process.
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || status.st_size < end) {
    refuse(fmt::format("had {} bytes when it was opened and has {}", file_bytes_, status.st_size));
  }
  const std::byte* const from = data_ + begin;
  switch (type_) {
    case TokenType::uint16:
      copy_tokens<std::uint16_t>(from, out);
      break;
    case TokenType::int32:
      copy_tokens<std::int32_t>(from, out);
      break;
    default:
      copy_tokens<std::uint8_t>(from, out);
  }
  const Bytes let_go_from = std::max<Bytes>(0, begin - begin % kNeighbourhood - kNeighbourhood);
  const Bytes let_go_to = std::min(file_bytes_, round_up(end, kNeighbourhood) + kNeighbourhood);
  ::madvise(data_ + let_go_from, static_cast<std::size_t>(let_go_to - let_go_from), MADV_DONTNEED);
}

}  // namespace zeroplan::executor
