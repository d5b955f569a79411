#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/program/step_program.hpp"
#include "planner/units.hpp"

// Files of named tensors in the safetensors format (https://github.com/huggingface/safetensors, "Format"): 8
// bytes with the length of a header (little-endian), the header in JSON (name: dtype, shape, place among the
// data; "__metadata__": text by name), and the data without gaps.
namespace zeroplan::executor {

struct TensorEntry {
  std::string name;
  std::vector<Elements> shape;
  program::DataType type = program::DataType::fp32;
  Bytes offset = 0;  // among the data

  Elements elements() const;
  Bytes bytes() const { return elements() * program::bytes_of(type); }
};

// "[768, 2304]"
std::string shape_text(const std::vector<Elements>& shape);

using Metadata = std::map<std::string, std::string, std::less<>>;

// The header's bytes, its length in front: a multiple of 8. Its size depends on names, shapes and the sizes
// of metadata only.
std::string tensor_file_header(std::span<const TensorEntry> tensors, const Metadata& metadata);

// One element of a data type, as fp32.
float load_float(const std::byte* from, program::DataType type);

// A safetensors file, mapped: nothing is read before it is used, and ranks of a host share what was. Tensors
// of types other than F32, F16 and BF16 have no place in training: they are listed in `others`.
class MappedTensorFile {
 public:
  // Throws ConfigurationError naming the file, and what in it is not as the format says.
  explicit MappedTensorFile(const std::string& path);
  ~MappedTensorFile();
  MappedTensorFile(const MappedTensorFile&) = delete;
  MappedTensorFile& operator=(const MappedTensorFile&) = delete;
  MappedTensorFile(MappedTensorFile&& other) noexcept;
  MappedTensorFile& operator=(MappedTensorFile&&) = delete;

  const std::string& path() const { return path_; }
  const std::vector<TensorEntry>& tensors() const { return tensors_; }          // by place
  const std::map<std::string, std::string>& others() const { return others_; }  // name: dtype
  const Metadata& metadata() const { return metadata_; }
  const TensorEntry* find(std::string_view name) const;
  const std::byte* data(const TensorEntry& tensor) const { return data_ + tensor.offset; }
  std::string_view header() const;  // with its length

 private:
  void read_header();
  [[noreturn]] void refuse(const std::string& key, const std::string& why) const;

  std::string path_;
  std::byte* mapped_ = nullptr;
  const std::byte* data_ = nullptr;
  Bytes bytes_ = 0;
  std::vector<TensorEntry> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::map<std::string, std::string> others_;
  Metadata metadata_;
};

}  // namespace zeroplan::executor
