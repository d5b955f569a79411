#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "executor/communicator/control_plane.hpp"
#include "executor/storage/tensor_file.hpp"

namespace zeroplan::executor {

// Where a rank puts its parts of the tensors. Every element is written by one rank.
class TensorSink {
 public:
  virtual ~TensorSink() = default;
  // Elements [at, at + values) of a tensor, which is an index into the list that is saved.
  virtual void write(std::size_t tensor, Elements at, std::span<const float> values) = 0;
};

struct SavedFile {
  std::string path;
  std::string also;  // where not empty: the file gets a second name, `path` with this behind it
};

// Writes fp32 tensors to a safetensors file that takes its place when all ranks have written their parts: whole
// or not at all (NewFile). All ranks call it and must see the same file system; it may take longer than the
// communicator's timeout. `write_own` is called on a thread of its own.
//
// Metadata gets `crc32`: the CRC-32 (that of zlib) of each tensor in the order of the data, 8 hexadecimal
// digits each; and `header_crc32`: that of the header while these 8 digits are 0.
//
// Throws DeviceError: the file cannot be written, or a value is not finite; then what was there stays.
void save_tensors(const SavedFile& file, std::vector<TensorEntry> tensors, Metadata metadata,
                  ControlPlane& world, const std::function<void(TensorSink&)>& write_own);

// Reads a file that save_tensors wrote, every rank a share, and throws the same ConfigurationError on all of
// them when a bit of it is another than was written, or a value is not finite.
void require_undamaged(const MappedTensorFile& file, ControlPlane& world);

}  // namespace zeroplan::executor
