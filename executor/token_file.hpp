#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/units.hpp"

namespace zeroplan::executor {

// How the bytes of a file are tokens; numbers are little-endian.
//   automatic  by what the file says of itself: llm.c's header of 256 int32 (magic 20240520: uint16, 20240801:
//              uint32), or a Megatron-LM index (NAME.idx beside NAME.bin); else uint16 where its name ends in
//              .bin, as nanoGPT writes it, and bytes otherwise
enum class TokenType : std::uint8_t { automatic, bytes, uint16, int32 };
std::string_view name_of(TokenType type);
// In the order of the enumeration: "auto", "bytes", ...
const std::vector<std::string>& token_type_names();

// A file of tokens, mapped: a 10 GB file costs no memory, and all ranks of a node share the pages that the
// system keeps of it. Any number of threads may read at once.
class TokenFile {
 public:
  // Throws ConfigurationError naming --data when it is no regular file, cannot be read, or is not a whole number
  // of tokens.
  explicit TokenFile(const std::string& path, TokenType type = TokenType::automatic);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  const std::string& path() const { return path_; }
  TokenType type() const { return type_; }  // never automatic
  Elements tokens() const { return tokens_; }
  // The byte of the file that a token starts at.
  Bytes byte_of(Elements token) const { return header_bytes_ + token * token_bytes_; }

  // Copies tokens [first, first + out.size()). A token of 32 bits that is no int32 comes out negative. The pages
  // are let go again, so that they never count as this process's memory. Throws ConfigurationError when the file
  // has become shorter.
  void read(Elements first, std::span<std::int32_t> out) const;

 private:
  [[noreturn]] void refuse(const std::string& why) const;
  void find_format(TokenType asked);
  void map();

  std::string path_;
  TokenType type_ = TokenType::bytes;
  Bytes header_bytes_ = 0, token_bytes_ = 1, file_bytes_ = 0;
  Elements tokens_ = 0;
  int descriptor_ = -1;
  std::byte* data_ = nullptr;  // of the whole file, for reading only
};

}  // namespace zeroplan::executor
