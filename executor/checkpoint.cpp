#include "executor/checkpoint.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <sstream>

#include "executor/elements.hpp"
#include "executor/error.hpp"
#include "planner/error.hpp"

namespace zeroplan::executor {

namespace {

using program::BufferId;
using program::kNoBuffer;
using program::Scalar;
using program::UnitPlacement;

constexpr std::string_view kMagic = "zeroplan checkpoint 1";
constexpr std::int64_t kHeaderMultiple = 4096;
constexpr Elements kBlock = 1 << 16;
constexpr Bytes kElementBytes = sizeof(float);

std::string last_error() { return std::strerror(errno); }

class File {
 public:
  File(const std::string& path, int flags) : number_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~File() {
    if (number_ >= 0) ::close(number_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool is_open() const { return number_ >= 0; }
  bool resize(Bytes bytes) const { return ::ftruncate(number_, bytes) == 0; }
  Bytes size() const {
    struct stat status {};
    return ::fstat(number_, &status) == 0 ? status.st_size : -1;
  }
  bool write(Bytes at, const void* from, Bytes bytes) const {
    const char* data = static_cast<const char*>(from);
    return all(at, bytes, [&](Bytes done, Bytes left) {
      return ::pwrite(number_, data + done, static_cast<std::size_t>(left), at + done);
    });
  }
  bool read(Bytes at, void* to, Bytes bytes) const {
    char* data = static_cast<char*>(to);
    return all(at, bytes, [&](Bytes done, Bytes left) {
      return ::pread(number_, data + done, static_cast<std::size_t>(left), at + done);
    });
  }
  // A full disk may be told only here.
  bool close() {
    const bool synced = ::fsync(number_) == 0;
    const bool closed = ::close(number_) == 0;
    number_ = -1;
    return synced && closed;
  }

 private:
  template <class Transfer>
  bool all(Bytes, Bytes bytes, const Transfer& transfer) const {
    for (Bytes done = 0; done < bytes;) {
      const ssize_t moved = transfer(done, bytes - done);
      if (moved < 0 && errno == EINTR) continue;
      if (moved <= 0) return false;
      done += moved;
    }
    return true;
  }

  int number_;
};

std::int64_t states_of(const UnitPlacement& unit) {
  return std::count_if(unit.states.begin(), unit.states.end(),
                       [](BufferId state) { return state != kNoBuffer; });
}

// One vector of the file: weights or a state of one layer of a unit.
struct Array {
  const UnitPlacement* unit = nullptr;
  std::int64_t layer = 0;
  std::int64_t state = -1;  // -1: weights
  Elements first = 0;       // among the elements of one tensor-parallel rank
};

Elements for_each_array(const program::StepProgram& program, const std::function<void(const Array&)>& visit) {
  Elements first = 0;
  for (const UnitPlacement& unit : program.units) {
    for (std::int64_t layer = unit.first_layer; layer < unit.first_layer + unit.layers; ++layer) {
      for (std::int64_t state = -1; state < states_of(unit); ++state) {
        visit({&unit, layer, state, first});
        first += unit.elements;
      }
    }
  }
  return first;
}

// The elements [begin, begin + count) of an array, which a tensor holds from `offset` on.
struct Part {
  Tensor tensor;
  Elements offset = 0, begin = 0, count = 0;
};

// What a buffer of this rank holds of an array: whole, or the rank's partition without its padding.
Part part_of(const UnitPlacement& unit, const Tensor& tensor, bool is_partition, std::int64_t rank) {
  if (!is_partition) return {tensor, 0, 0, unit.elements};
  const Elements begin = std::min(unit.elements, rank * unit.partition);
  return {tensor, 0, begin, std::min(unit.partition, unit.elements - begin)};
}

Part parameter_part(const Array& array, Rank& rank) {
  const UnitPlacement& unit = *array.unit;
  return part_of(unit, rank.interpreter().tensor(unit.parameter, array.layer), unit.parameter_is_partition,
                 rank.program().data_parallel.rank);
}

// What this rank owns of an array, where it is kept most exactly.
Part owned_part(const Array& array, Rank& rank) {
  const UnitPlacement& unit = *array.unit;
  const std::int64_t position = rank.program().data_parallel.rank;
  const BufferId buffer = array.state >= 0 ? unit.states[static_cast<std::size_t>(array.state)] : unit.master;
  if (buffer != kNoBuffer) {
    return part_of(unit, rank.interpreter().tensor(buffer, array.layer), unit.states_are_partition, position);
  }
  Part part = parameter_part(array, rank);
  if (unit.states_are_partition && !unit.parameter_is_partition) {
    const Part own = part_of(unit, part.tensor, true, position);
    part.offset = part.begin = own.begin;
    part.count = own.count;
  }
  return part;
}

using Header = std::vector<std::pair<std::string, std::string>>;

// The keys that must be the same, in order.
Header required(const TrainingIdentity& identity, const Rank& rank) {
  Header header = identity;
  const program::StepProgram& program = rank.program();
  header.emplace_back("tensor_parallel", fmt::format("{}", program.tensor_parallel.size));
  std::string units;
  for (const UnitPlacement& unit : program.units) {
    units +=
        fmt::format("{}{}x{}x{}", units.empty() ? "" : ",", unit.layers, 1 + states_of(unit), unit.elements);
  }
  header.emplace_back("vectors", units);
  return header;
}

std::string text_of(const Header& header) {
  std::string text = fmt::format("{}\n", kMagic);
  for (const auto& [key, value] : header) text += fmt::format("{} {}\n", key, value);
  text.resize(
      static_cast<std::size_t>(round_up(static_cast<std::int64_t>(text.size()) + 1, kHeaderMultiple)));
  return text;
}

struct Reader {
  const std::string& path;

  [[noreturn]] void refuse(const std::string& key, const std::string& why) const {
    throw ConfigurationError(Problem{path, 0, key, why});
  }

  std::pair<std::map<std::string, std::string>, Bytes> header(const File& file) const {
    if (!file.is_open()) {
      throw ConfigurationError(Problem{
          "--resume", 0, "", fmt::format("{} cannot be read: {}", zeroplan::quoted(path), last_error())});
    }
    std::string text;
    std::size_t end = std::string::npos;
    for (Bytes at = 0; end == std::string::npos; at += kHeaderMultiple) {
      std::array<char, kHeaderMultiple> block{};
      if (!file.read(at, block.data(), kHeaderMultiple)) refuse("", "is not a checkpoint of zeroplan");
      text.append(block.data(), block.size());
      if (!text.starts_with(kMagic)) refuse("", "is not a checkpoint of zeroplan");
      end = text.find('\0');
    }
    std::map<std::string, std::string> values;
    std::istringstream lines(text.substr(0, end));
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      const std::size_t space = line.find(' ');
      values.emplace(line.substr(0, space), space == std::string::npos ? "" : line.substr(space + 1));
    }
    return {values, static_cast<Bytes>(text.size())};
  }

  const std::string& text(const std::map<std::string, std::string>& values, const std::string& key) const {
    const auto found = values.find(key);
    if (found == values.end()) refuse(key, "is missing");
    return found->second;
  }

  template <class Number>
  Number number(const std::map<std::string, std::string>& values, const std::string& key) const {
    Number value{};
    const std::string& text = this->text(values, key);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
      refuse(key, fmt::format("found {}, expected a number", zeroplan::quoted(text)));
    }
    return value;
  }
};

void write_part(const File& file, Bytes array_at, const Part& part) {
  std::vector<float> block(static_cast<std::size_t>(std::min(kBlock, part.count)));
  for (Elements done = 0; done < part.count; done += kBlock) {
    const Elements count = std::min(kBlock, part.count - done);
    for (Elements i = 0; i < count; ++i) {
      block[static_cast<std::size_t>(i)] = load_element(part.tensor, part.offset + done + i);
    }
    if (!file.write(array_at + (part.begin + done) * kElementBytes, block.data(), count * kElementBytes)) {
      throw DeviceError(fmt::format("checkpoint: cannot be written: {}", last_error()));
    }
  }
}

void read_part(const Reader& reader, const File& file, Bytes array_at, const Part& part) {
  std::vector<float> block(static_cast<std::size_t>(std::min(kBlock, part.count)));
  for (Elements done = 0; done < part.count; done += kBlock) {
    const Elements count = std::min(kBlock, part.count - done);
    if (!file.read(array_at + (part.begin + done) * kElementBytes, block.data(), count * kElementBytes)) {
      reader.refuse("", fmt::format("cannot be read: {}", last_error()));
    }
    for (Elements i = 0; i < count; ++i) {
      store_element(part.tensor, part.offset + done + i, block[static_cast<std::size_t>(i)]);
    }
  }
}

}  // namespace

void save_checkpoint(const std::string& path, const TrainingIdentity& identity, const RunPosition& position,
                     Rank& rank, Communicator& world) {
  const program::StepProgram& program = rank.program();
  Header header = required(identity, rank);
  header.emplace_back("steps", fmt::format("{}", position.steps));
  header.emplace_back("sequences", fmt::format("{}", position.data.sequences));
  header.emplace_back("data", position.data.order);
  header.emplace_back("updates", fmt::format("{}", rank.steps()));
  header.emplace_back("loss_scale", fmt::format("{}", rank.interpreter().scalar(Scalar::loss_scale)));
  header.emplace_back("good_steps", fmt::format("{}", rank.interpreter().scalar(Scalar::good_steps)));
  const std::string text = text_of(header);
  const std::string beside = path + ".partial";
  const auto header_bytes = static_cast<Bytes>(text.size());
  const bool first = world.rank() == 0;
  const auto require = [&](bool done) {
    if (!done)
      throw DeviceError(
          fmt::format("checkpoint {} cannot be written: {}", zeroplan::quoted(path), last_error()));
  };
  const Elements elements = for_each_array(program, [](const Array&) {});
  if (first) {
    File file(beside, O_WRONLY | O_CREAT | O_TRUNC);
    require(file.is_open() &&
            file.resize(header_bytes + program.tensor_parallel.size * elements * kElementBytes) &&
            file.write(0, text.data(), header_bytes) && file.close());
  }
  world.barrier();
  try {
    File file(beside, O_WRONLY);
    require(file.is_open());
    const Bytes own_at = header_bytes + program.tensor_parallel.rank * elements * kElementBytes;
    for_each_array(program, [&](const Array& array) {
      if (!array.unit->states_are_partition && program.data_parallel.rank != 0) return;
      write_part(file, own_at + array.first * kElementBytes, owned_part(array, rank));
    });
    require(file.close());
    world.barrier();
  } catch (...) {
    if (first) ::unlink(beside.c_str());
    throw;
  }
  if (first) require(std::rename(beside.c_str(), path.c_str()) == 0);
  world.barrier();
}

RunPosition load_checkpoint(const std::string& path, const TrainingIdentity& identity, Rank& rank) {
  const program::StepProgram& program = rank.program();
  const Reader reader{path};
  const File file(path, O_RDONLY);
  const auto [values, header_bytes] = reader.header(file);
  for (const auto& [key, value] : required(identity, rank)) {
    const auto found = values.find(key);
    if (found == values.end()) reader.refuse(key, "is missing");
    if (found->second != value) {
      reader.refuse(key, fmt::format("found {}, expected {}", zeroplan::quoted(found->second),
                                     zeroplan::quoted(value)));
    }
  }
  const Elements elements = for_each_array(program, [](const Array&) {});
  const Bytes expected = header_bytes + program.tensor_parallel.size * elements * kElementBytes;
  if (file.size() != expected) {
    reader.refuse("", fmt::format("has {} bytes, expected {}: it is damaged", file.size(), expected));
  }
  const Bytes own_at = header_bytes + program.tensor_parallel.rank * elements * kElementBytes;
  for_each_array(program, [&](const Array& array) {
    const Bytes at = own_at + array.first * kElementBytes;
    read_part(reader, file, at, owned_part(array, rank));
    if (array.state < 0) read_part(reader, file, at, parameter_part(array, rank));
  });
  rank.set_steps(reader.number<std::int64_t>(values, "updates"));
  rank.interpreter().set_scalar(Scalar::loss_scale, reader.number<float>(values, "loss_scale"));
  rank.interpreter().set_scalar(Scalar::good_steps, reader.number<float>(values, "good_steps"));
  return {reader.number<std::int64_t>(values, "steps"),
          {reader.number<std::int64_t>(values, "sequences"), reader.text(values, "data")}};
}

}  // namespace zeroplan::executor
