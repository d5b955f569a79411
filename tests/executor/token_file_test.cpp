#include "executor/token_file.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "executor/process_memory.hpp"
#include "planner/error.hpp"
#include "tests/support/command.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;
using zeroplan::test::TemporaryFolder;

namespace {

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::string written(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::vector<std::int32_t> all_of(const TokenFile& file) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.tokens()));
  file.read(0, tokens);
  return tokens;
}

// As llm.c's dev/data/data_common.py writes it: 256 int32, then the tokens.
std::string llmc_header(std::int32_t magic, std::int32_t version, std::int32_t tokens) {
  std::vector<std::int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = tokens;
  return bytes_of(header);
}

// As Megatron-LM's IndexedDataset writes it, for one document of `tokens`.
std::string megatron_index(char type, std::int32_t tokens) {
  return std::string("MMIDIDX\0\0", 9) + bytes_of<std::uint64_t>({1}) + type +
         bytes_of<std::uint64_t>({1, 2}) + bytes_of<std::int32_t>({tokens}) + bytes_of<std::int64_t>({0}) +
         bytes_of<std::int64_t>({0, 1});
}

}  // namespace

TEST_CASE("the token files of nanoGPT, llm.c and Megatron-LM are read as what they are") {
  const TemporaryFolder folder;
  const std::vector<std::uint16_t> small{1, 50256, 65535};
  const std::vector<std::int32_t> expected{1, 50256, 65535};

  CHECK(all_of(TokenFile(written(folder.file("train.bin"), bytes_of(small)))) == expected);

  const TokenFile llmc(written(folder.file("llmc"), llmc_header(20240520, 1, 3) + bytes_of(small)));
  CHECK(all_of(llmc) == expected);
  CHECK(llmc.byte_of(1) == 1026);
  const std::vector<std::uint32_t> large{1, 128255, 0xffffffff};
  CHECK(all_of(TokenFile(written(folder.file("llama3"), llmc_header(20240801, 7, 3) + bytes_of(large)))) ==
        std::vector<std::int32_t>{1, 128255, -1});

  written(folder.file("document.idx"), megatron_index(4, 3));
  const std::string bin = written(folder.file("document.bin"), bytes_of(expected));
  CHECK(all_of(TokenFile(bin)) == expected);
  written(folder.file("document.idx"), megatron_index(8, 6));
  CHECK(all_of(TokenFile(bin)) == std::vector<std::int32_t>{1, 0, 50256, 0, 65535, 0});
  written(folder.file("document.idx"), megatron_index(7, 3));
  CHECK_THROWS_WITH_AS(TokenFile{bin}, doctest::Contains("--data-type"), ConfigurationError);
  CHECK(all_of(TokenFile(bin, TokenType::int32)) == expected);

  CHECK(all_of(TokenFile(written(folder.file("book.txt"), "ab\xff"))) ==
        std::vector<std::int32_t>{'a', 'b', 255});
  CHECK(TokenFile(folder.file("train.bin"), TokenType::bytes).tokens() == 6);
}

TEST_CASE("what is no file of tokens is refused with the reason") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& path, const char* why, TokenType type = TokenType::automatic) {
    CAPTURE(path);
    CHECK_THROWS_WITH_AS(TokenFile(path, type), doctest::Contains(why), ConfigurationError);
  };
  refused("/dev/zero", "is no regular file");
  refused(folder.path(), "is a folder");
  refused(folder.file("absent"), "cannot be read");
  refused(written(folder.file("odd.bin"), "abc"), "has 3 bytes, expected a multiple of 2");
  refused(written(folder.file("six"), "abcdef"), "expected a multiple of 4", TokenType::int32);
  refused(written(folder.file("cut"), llmc_header(20240520, 1, 4) + "abcdef"), "it is damaged");
}

TEST_CASE("a file that becomes shorter while it is read is an error, not the end of the process") {
  const TemporaryFolder folder;
  const std::string path = written(folder.file("text"), std::string(100'000, 'a'));
  const TokenFile file(path);
  std::filesystem::resize_file(path, 10);
  std::vector<std::int32_t> tokens(5);
  file.read(0, tokens);
  CHECK_THROWS_AS(file.read(50'000, tokens), ConfigurationError);
}

TEST_CASE("reading all of a large file leaves none of it in the resident set") {
  const TemporaryFolder folder;
  constexpr Bytes kFile = 256 * kMiB;
  const std::string path = written(folder.file("sparse"), "");
  std::filesystem::resize_file(path, kFile);
  const TokenFile file(path);
  std::vector<std::int32_t> tokens(1024);
  reset_peak_resident();
  const Bytes before = resident_bytes();
  for (Elements at = 0; at + 1024 <= kFile; at += 64 * kKiB) file.read(at, tokens);
  CHECK(peak_resident_bytes() - before < 8 * kMiB);
}
