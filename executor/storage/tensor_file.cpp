#include "executor/storage/tensor_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "executor/half.hpp"
#include "executor/storage/new_file.hpp"
#include "planner/error.hpp"

namespace zeroplan::executor {

namespace {

using nlohmann::json;
using program::DataType;

constexpr Bytes kLength = 8;                // of the header, in front of it
constexpr Bytes kMostHeader = 100'000'000;  // the reference implementation's limit
constexpr std::string_view kMetadata = "__metadata__";

std::string_view dtype_of(DataType type) {
  switch (type) {
    case DataType::fp16:
      return "F16";
    case DataType::bf16:
      return "BF16";
    default:
      return "F32";
  }
}

std::optional<DataType> type_of(std::string_view dtype) {
  for (const DataType type : {DataType::fp32, DataType::fp16, DataType::bf16}) {
    if (dtype == dtype_of(type)) return type;
  }
  return std::nullopt;
}

// What people have that is none: said by its first bytes.
std::string what_it_is(std::string_view start) {
  if (start.starts_with("PK\x03\x04") || start.starts_with("\x80\x02")) {
    return "is a pickle of PyTorch, expected safetensors (save_pretrained(..., safe_serialization=True))";
  }
  if (start.starts_with("GGUF")) return "is a GGUF file, expected safetensors";
  if (start.starts_with("zeroplan checkpoint 1")) {
    return "is a checkpoint of format 1, whose vectors had no names; this version reads format 2 only";
  }
  if (start.starts_with("version https://git-lfs")) return "is a pointer of Git LFS, not the file itself";
  return "is no safetensors file: it does not begin with a header";
}

struct Place {
  Bytes begin = 0, end = 0;
  std::string name;
};

}  // namespace

Elements TensorEntry::elements() const {
  Elements product = 1;
  for (const Elements size : shape) product *= size;
  return product;
}

std::string shape_text(const std::vector<Elements>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string tensor_file_header(std::span<const TensorEntry> tensors, const Metadata& metadata) {
  nlohmann::ordered_json header;
  header[std::string(kMetadata)] = metadata;
  for (const TensorEntry& tensor : tensors) {
    header[tensor.name] = {{"dtype", dtype_of(tensor.type)},
                           {"shape", tensor.shape},
                           {"data_offsets", {tensor.offset, tensor.offset + tensor.bytes()}}};
  }
  // Names of files may be no UTF-8.
  std::string text = header.dump(-1, ' ', false, json::error_handler_t::replace);
  text.resize(static_cast<std::size_t>(round_up(static_cast<Bytes>(text.size()), kLength)), ' ');
  std::string length(kLength, '\0');
  for (std::size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<char>(static_cast<std::uint64_t>(text.size()) >> (8 * i) & 0xff);
  }
  return length + text;
}

float load_float(const std::byte* from, DataType type) {
  if (type == DataType::fp32) {
    float value = 0;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  return type == DataType::fp16 ? float_from_fp16(bits) : float_from_bf16(bits);
}

MappedTensorFile::MappedTensorFile(const std::string& path) : path_(path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    const bool exists = std::filesystem::exists(path, error);
    refuse("", exists ? "is no ordinary file" : "cannot be read: there is no such file");
  }
  try {
    const File file(path, O_RDONLY);
    bytes_ = file.size();
    if (bytes_ > 0) {
      void* mapped =
          ::mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ, MAP_SHARED, file.descriptor(), 0);
      if (mapped == MAP_FAILED) refuse("", fmt::format("cannot be mapped: {}", std::strerror(errno)));
      mapped_ = static_cast<std::byte*>(mapped);
    }
  } catch (const FileError& failed) {
    throw ConfigurationError(Problem{"", 0, "", failed.what()});
  }
  try {
    read_header();
  } catch (...) {
    if (mapped_ != nullptr) ::munmap(mapped_, static_cast<std::size_t>(bytes_));
    throw;
  }
}

MappedTensorFile::~MappedTensorFile() {
  if (mapped_ != nullptr) ::munmap(mapped_, static_cast<std::size_t>(bytes_));
}

MappedTensorFile::MappedTensorFile(MappedTensorFile&& other) noexcept
    : path_(std::move(other.path_)),
      mapped_(std::exchange(other.mapped_, nullptr)),
      data_(other.data_),
      bytes_(other.bytes_),
      tensors_(std::move(other.tensors_)),
      by_name_(std::move(other.by_name_)),
      others_(std::move(other.others_)),
      metadata_(std::move(other.metadata_)) {}

void MappedTensorFile::refuse(const std::string& key, const std::string& why) const {
  throw ConfigurationError(Problem{path_, 0, key, why});
}

std::string_view MappedTensorFile::header() const {
  return {reinterpret_cast<const char*>(mapped_), static_cast<std::size_t>(data_ - mapped_)};
}

void MappedTensorFile::read_header() {
  const std::string_view text(reinterpret_cast<const char*>(mapped_), static_cast<std::size_t>(bytes_));
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(std::min(kLength, bytes_)); ++i) {
    length |= static_cast<std::uint64_t>(static_cast<unsigned char>(text[i])) << (8 * i);
  }
  if (bytes_ <= kLength || length > static_cast<std::uint64_t>(kMostHeader) || text[kLength] != '{') {
    refuse("", what_it_is(text.substr(0, std::min<std::size_t>(text.size(), 64))));
  }
  const auto header_bytes = static_cast<Bytes>(length);
  if (header_bytes > bytes_ - kLength) {
    refuse("", fmt::format("ends inside its header: it has {} bytes, the header {}", bytes_, header_bytes));
  }
  data_ = mapped_ + kLength + header_bytes;
  const Bytes data_bytes = bytes_ - kLength - header_bytes;
  const json header = json::parse(text.substr(kLength, length), nullptr, false);
  if (!header.is_object()) refuse("", "has a header that is no JSON object: it is damaged");

  std::vector<Place> places;
  places.reserve(header.size());
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadata) {
      if (!value.is_object()) refuse(name, "found no object, expected text by name");
      for (const auto& [key, text_value] : value.items()) {
        if (!text_value.is_string()) refuse(fmt::format("{}.{}", name, key), "expected text");
        metadata_.emplace(key, text_value.get<std::string>());
      }
      continue;
    }
    TensorEntry tensor{.name = name, .shape = {}};
    try {
      const std::string dtype = value.at("dtype").get<std::string>();
      const auto offsets = value.at("data_offsets").get<std::array<std::uint64_t, 2>>();
      const auto shape = value.at("shape").get<std::vector<std::uint64_t>>();
      if (offsets[0] > offsets[1] || offsets[1] > static_cast<std::uint64_t>(data_bytes)) {
        refuse(name, fmt::format("has bytes {} to {} of data of {} bytes: the file is cut short or damaged",
                                 offsets[0], offsets[1], data_bytes));
      }
      places.push_back({static_cast<Bytes>(offsets[0]), static_cast<Bytes>(offsets[1]), name});
      const std::optional<DataType> type = type_of(dtype);
      if (!type) {
        others_.emplace(name, dtype);
        continue;
      }
      tensor.type = *type;
      tensor.offset = places.back().begin;
      // The product stays below the bytes of the file, or the tensor is refused.
      std::uint64_t elements = 1;
      for (const std::uint64_t size : shape) {
        if (size > static_cast<std::uint64_t>(bytes_) ||
            (size > 0 && elements > static_cast<std::uint64_t>(bytes_) / size)) {
          refuse(name, "has a shape larger than the file");
        }
        elements *= size;
        tensor.shape.push_back(static_cast<Elements>(size));
      }
      if (tensor.bytes() != places.back().end - places.back().begin) {
        refuse(name,
               fmt::format("has {} bytes, expected {} for {} {}", places.back().end - places.back().begin,
                           tensor.bytes(), dtype, shape_text(tensor.shape)));
      }
    } catch (const json::exception&) {
      refuse(name, "expected dtype, shape and data_offsets of a tensor");
    }
    tensors_.push_back(std::move(tensor));
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  Bytes end = 0;
  for (const Place& place : places) {
    if (place.begin != end) refuse(place.name, "does not begin where the tensor before it ends");
    end = place.end;
  }
  if (end != data_bytes) {
    refuse("", fmt::format("has {} bytes of data, expected {}: it is damaged", data_bytes, end));
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.offset, a.name) < std::pair(b.offset, b.name);
  });
  for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
}

const TensorEntry* MappedTensorFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace zeroplan::executor
