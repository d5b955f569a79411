#include "executor/storage/save_tensors.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <utility>

#include "executor/error.hpp"
#include "executor/storage/new_file.hpp"
#include "executor/storage/while_meeting.hpp"
#include "planner/error.hpp"

namespace zeroplan::executor {

namespace {

constexpr std::string_view kTensorChecks = "crc32";
constexpr std::string_view kHeaderCheck = "header_crc32";
constexpr std::string_view kNoCheck = "00000000";
constexpr Bytes kElementBytes = sizeof(float);

std::string digits(std::uint32_t check) { return fmt::format("{:08x}", check); }

std::uint32_t crc_of(const void* data, std::size_t bytes) {
  return static_cast<std::uint32_t>(::crc32_z(0, static_cast<const Bytef*>(data), bytes));
}

// What bytes with this CRC add to that of a tensor in which `behind` bytes follow them. The CRC of the whole is
// the exclusive or of what its parts add, in any order: CRCs are linear (zlib's crc32_combine).
std::uint32_t contribution(std::uint32_t crc, Bytes behind) {
  return static_cast<std::uint32_t>(::crc32_combine(crc, 0, static_cast<z_off_t>(behind)));
}

// One rank's notes of what it wrote, by tensor.
struct Notes {
  std::vector<std::uint32_t> crc;
  std::vector<std::uint32_t> not_finite;  // 1: some value is not
};

class FileSink final : public TensorSink {
 public:
  FileSink(const File& file, Bytes data_at, std::span<const TensorEntry> tensors, Notes& notes,
           std::stop_token stop)
      : file_(file), data_at_(data_at), tensors_(tensors), notes_(notes), stop_(std::move(stop)) {}

  void write(std::size_t tensor, Elements at, std::span<const float> values) override {
    if (stop_.stop_requested()) throw DeviceError("the ranks were ended");
    const TensorEntry& entry = tensors_[tensor];
    const auto bytes = static_cast<Bytes>(values.size_bytes());
    const Bytes begin = at * kElementBytes;
    if (!std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); })) {
      notes_.not_finite[tensor] = 1;
    }
    notes_.crc[tensor] ^=
        contribution(crc_of(values.data(), values.size_bytes()), entry.bytes() - begin - bytes);
    file_.write(data_at_ + entry.offset + begin, values.data(), bytes);
  }

 private:
  const File& file_;
  Bytes data_at_;
  std::span<const TensorEntry> tensors_;
  Notes& notes_;
  std::stop_token stop_;
};

// Rank 0's text, on every rank.
std::string told(const std::string& text, ControlPlane& world) {
  std::size_t length = text.size();
  world.share(std::as_writable_bytes(std::span(&length, 1)), 0);
  std::string letters = text;
  letters.resize(length);
  world.share(std::as_writable_bytes(std::span(letters)), 0);
  return letters;
}

// Every rank's put together, element by element.
template <class Operation>
std::vector<std::uint32_t> combined(std::vector<std::uint32_t> own, Operation operation,
                                    ControlPlane& world) {
  const std::vector<std::uint32_t> all = gathered(world, std::span<const std::uint32_t>(own));
  std::fill(own.begin(), own.end(), 0);
  for (std::size_t i = 0; i < all.size(); ++i) own[i % own.size()] = operation(own[i % own.size()], all[i]);
  return own;
}

std::string header_with(std::span<const TensorEntry> tensors, Metadata& metadata,
                        std::span<const std::uint32_t> checks) {
  std::string& text = metadata[std::string(kTensorChecks)];
  text.clear();
  for (const std::uint32_t check : checks) text += digits(check);
  std::string& own = metadata[std::string(kHeaderCheck)];
  own = kNoCheck;
  const std::string header = tensor_file_header(tensors, metadata);
  own = digits(crc_of(header.data(), header.size()));
  return tensor_file_header(tensors, metadata);
}

[[noreturn]] void cannot_save(const std::string& path, const std::string& why) {
  throw DeviceError(fmt::format("{} was not saved: {}", zeroplan::quoted(path), why));
}

}  // namespace

void save_tensors(const SavedFile& file, std::vector<TensorEntry> tensors, Metadata metadata,
                  ControlPlane& world, const std::function<void(TensorSink&)>& write_own) {
  Bytes data_bytes = 0;
  for (TensorEntry& tensor : tensors) {
    tensor.offset = data_bytes;
    data_bytes += tensor.bytes();
  }
  Notes notes{std::vector<std::uint32_t>(tensors.size()), std::vector<std::uint32_t>(tensors.size())};
  const auto header_bytes = static_cast<Bytes>(header_with(tensors, metadata, notes.crc).size());
  const bool first = world.rank() == 0;
  try {
    std::optional<NewFile> made;
    if (first) {
      made.emplace(file.path);
      made->file().resize(header_bytes + data_bytes);
    }
    const std::string partial = told(first ? made->file().path() : "", world);
    while_meeting(world, [&](const std::stop_token& stop) {
      std::optional<File> opened;
      if (!first) opened.emplace(partial, O_WRONLY);
      const File& written = first ? made->file() : *opened;
      FileSink sink(written, header_bytes, tensors, notes, stop);
      write_own(sink);
      written.sync();
    });
    const std::vector<std::uint32_t> checks = combined(std::move(notes.crc), std::bit_xor<>(), world);
    const std::vector<std::uint32_t> bad = combined(std::move(notes.not_finite), std::bit_or<>(), world);
    const auto at = std::find_if(bad.begin(), bad.end(), [](std::uint32_t parts) { return parts != 0; });
    if (at != bad.end()) {
      cannot_save(file.path, fmt::format("{} holds values that are not finite; what was there stays",
                                         tensors[static_cast<std::size_t>(at - bad.begin())].name));
    }
    // The header comes last, and the name after it.
    while_meeting(world, [&](const std::stop_token&) {
      if (!first) return;
      const std::string header = header_with(tensors, metadata, checks);
      made->file().write(0, header.data(), header_bytes);
      made->install(file.also);
    });
  } catch (const FileError& error) {
    cannot_save(file.path, error.what());
  }
}

namespace {

struct Damage {
  std::uint32_t tensor = 0;  // from 1; 0: none
  std::uint32_t changed = 0, not_finite = 0;
};

bool all_finite(const std::byte* data, Elements elements) {
  Elements finite = 0;
  for (Elements i = 0; i < elements; ++i) {
    if (std::isfinite(load_float(data + i * kElementBytes, program::DataType::fp32))) ++finite;
  }
  return finite == elements;
}

void require_header(const MappedTensorFile& file) {
  const auto found = file.metadata().find(kHeaderCheck);
  std::string header(file.header());
  const std::string quoted_check = found == file.metadata().end() ? "" : fmt::format("\"{}\"", found->second);
  const std::size_t at = header.find(fmt::format("\"{}\":{}", kHeaderCheck, quoted_check));
  bool intact = quoted_check.size() == kNoCheck.size() + 2 && at != std::string::npos;
  if (intact) {
    header.replace(at + kHeaderCheck.size() + 4, kNoCheck.size(), kNoCheck);
    intact = digits(crc_of(header.data(), header.size())) == found->second;
  }
  if (!intact) {
    throw ConfigurationError(
        Problem{file.path(), 0, "", "is damaged: its header is not what was written (CRC-32)"});
  }
}

}  // namespace

void require_undamaged(const MappedTensorFile& file, ControlPlane& world) {
  require_header(file);
  const std::vector<TensorEntry>& tensors = file.tensors();
  const auto found = file.metadata().find(kTensorChecks);
  const std::string checks = found == file.metadata().end() ? "" : found->second;
  if (checks.size() != tensors.size() * kNoCheck.size()) {
    throw ConfigurationError(
        Problem{file.path(), 0, std::string(kTensorChecks), "is not one check a tensor"});
  }
  const Bytes total = tensors.empty() ? 0 : tensors.back().offset + tensors.back().bytes();
  Damage own;
  while_meeting(world, [&](const std::stop_token& stop) {
    for (std::size_t i = 0; i < tensors.size() && own.tensor == 0; ++i) {
      const TensorEntry& tensor = tensors[i];
      // The rank in whose equal share of the data a tensor begins.
      const Bytes share = total / world.size() + 1;
      if (tensor.offset / share != world.rank()) continue;
      if (stop.stop_requested()) return;
      const std::byte* data = file.data(tensor);
      const bool same = checks.compare(i * kNoCheck.size(), kNoCheck.size(),
                                       digits(crc_of(data, static_cast<std::size_t>(tensor.bytes())))) == 0;
      const bool finite = all_finite(data, tensor.elements());
      if (!same || !finite) own = {static_cast<std::uint32_t>(i + 1), same ? 0U : 1U, finite ? 0U : 1U};
    }
  });
  for (const Damage& damage : gathered(world, own)) {
    if (damage.tensor == 0) continue;
    const std::string& name = tensors[damage.tensor - 1].name;
    throw ConfigurationError(Problem{file.path(), 0, name,
                                     damage.changed != 0
                                         ? "is damaged: it is not what was written (CRC-32)"
                                         : "holds values that are not finite: the training had diverged"});
  }
}

}  // namespace zeroplan::executor
