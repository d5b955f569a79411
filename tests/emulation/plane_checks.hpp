#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "executor/communicator/communicator.hpp"
#include "executor/device/cuda/recordings.hpp"
#include "executor/half.hpp"
#include "tests/emulation/bare_device.hpp"

// What every data plane of devices must do, as ranks that are threads check it: what is wrong ends the run.
namespace zeroplan::executor::test {

using program::DataType;
using program::Group;
using program::GroupKind;
using program::Stream;

inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// One group of all ranks.
inline std::vector<Group> all_of(const Communicator& world) {
  return {{GroupKind::data_parallel, world.size(), world.rank(), 1}};
}
// Pairs of neighbours, and those with the same place in a pair.
inline std::vector<Group> pairs_and_places(const Communicator& world) {
  return {{GroupKind::tensor_parallel, 2, world.rank() % 2, 1},
          {GroupKind::data_parallel, world.size() / 2, world.rank() / 2, 2}};
}

// A vector in the device's memory, as numbers.
class DeviceVector {
 public:
  DeviceVector(BareDevice& device, DataType type, Elements elements, std::byte* at = nullptr)
      : device_(device), owns_(at == nullptr) {
    tensor_ = {.data = at, .type = type, .elements = elements};
    if (owns_) tensor_.data = device.allocate(std::max<Bytes>(1, tensor_.bytes()), program::Space::device);
  }
  ~DeviceVector() {
    if (!owns_) return;
    device_.drain();
    device_.deallocate(tensor_.data, tensor_.bytes(), program::Space::device);
  }
  DeviceVector(const DeviceVector&) = delete;
  DeviceVector& operator=(const DeviceVector&) = delete;

  Tensor tensor() const { return tensor_; }
  Tensor part(Elements first, Elements elements) const {
    return {.data = tensor_.data + first * program::bytes_of(tensor_.type),
            .type = tensor_.type,
            .elements = elements};
  }
  void set(const std::vector<double>& values) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(tensor_.bytes()));
    const Tensor host{.data = bytes.data(), .type = tensor_.type, .elements = tensor_.elements};
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto value = static_cast<float>(values[i]);
      if (tensor_.type == DataType::fp32) {
        host.as<float>()[i] = value;
      } else {
        host.as<std::uint16_t>()[i] =
            tensor_.type == DataType::fp16 ? fp16_from_float(value) : bf16_from_float(value);
      }
    }
    device_.upload(tensor_.data, bytes, Stream::communication);
  }
  std::vector<double> get() {
    std::vector<std::byte> bytes(static_cast<std::size_t>(tensor_.bytes()));
    device_.download(bytes, tensor_.data);
    const Tensor host{.data = bytes.data(), .type = tensor_.type, .elements = tensor_.elements};
    std::vector<double> values;
    for (std::size_t i = 0; i < static_cast<std::size_t>(tensor_.elements); ++i) {
      if (tensor_.type == DataType::fp32) {
        values.push_back(static_cast<double>(host.as<float>()[i]));
      } else {
        const std::uint16_t bits = host.as<std::uint16_t>()[i];
        values.push_back(static_cast<double>(tensor_.type == DataType::fp16 ? float_from_fp16(bits)
                                                                            : float_from_bf16(bits)));
      }
    }
    return values;
  }

 private:
  BareDevice& device_;
  Tensor tensor_;
  bool owns_;
};

// Of rank `rank`: with fractions of up to six bits, so that it is exact in every type and sums are not always.
inline double value_of(std::int64_t rank, std::int64_t i) {
  const auto whole = static_cast<double>((rank * 7919 + i * 104729 + rank * i) % 127 - 63);
  return i % 3 == 1 ? whole / 16 : whole;
}
inline std::vector<double> values_of(std::int64_t rank, Elements elements) {
  std::vector<double> values;
  for (Elements i = 0; i < elements; ++i) values.push_back(value_of(rank, i));
  return values;
}

inline double last_place(DataType type) {
  return std::ldexp(1.0, type == DataType::fp32 ? -24 : type == DataType::fp16 ? -11 : -8);
}

// `roundings`: how often a sum is rounded; at each, half a unit of the last place of the largest number on the way.
inline void require_close(double got, double want, double largest, DataType type, int roundings,
                          const std::string& what) {
  require(std::fabs(got - want) <= roundings * last_place(type) * largest,
          what + ": " + std::to_string(got) + " where " + std::to_string(want) + " is right");
}

inline void check_collectives(BareDevice& device, DataPlane& plane, int roundings) {
  const std::int64_t ranks = plane.size();
  const std::int64_t rank = plane.rank();
  const auto sum_at = [&](Elements i) {
    double sum = 0;
    for (std::int64_t r = 0; r < ranks; ++r) sum += value_of(r, i);
    return sum;
  };
  const double largest = 64.0 * static_cast<double>(ranks);
  const auto run = [&](const Transfer& transfer) {
    plane.enqueue(transfer, device, Stream::communication, {});
    device.synchronize();
  };
  for (const DataType type : {DataType::fp32, DataType::fp16, DataType::bf16}) {
    for (const Elements part : {Elements{0}, Elements{1}, Elements{37}}) {
      const Elements whole = part * ranks;
      DeviceVector vector(device, type, whole + (part > 0 ? 1 : 0));  // no multiple of the ranks
      vector.set(values_of(rank, vector.tensor().elements));
      run({.kind = TransferKind::all_reduce, .whole = vector.tensor()});
      std::vector<double> got = vector.get();
      for (std::size_t i = 0; i < got.size(); ++i) {
        require_close(got[i], sum_at(static_cast<Elements>(i)), largest, type, roundings, "all_reduce");
      }
      vector.set(values_of(rank, vector.tensor().elements));
      run({.kind = TransferKind::all_reduce, .reduction = Reduction::maximum, .whole = vector.tensor()});
      got = vector.get();
      for (std::size_t i = 0; i < got.size(); ++i) {
        double most = value_of(0, static_cast<Elements>(i));
        for (std::int64_t r = 1; r < ranks; ++r) most = std::max(most, value_of(r, static_cast<Elements>(i)));
        require(got[i] == most, "maximum");
      }
      vector.set(values_of(rank, vector.tensor().elements));
      run({.kind = TransferKind::reduce_scatter, .whole = vector.part(0, whole)});
      got = vector.get();
      for (Elements i = rank * part; i < (rank + 1) * part; ++i) {
        require_close(got[static_cast<std::size_t>(i)], sum_at(i), largest, type, roundings,
                      "reduce_scatter");
      }
      if (part > 0) require(got.back() == value_of(rank, whole), "behind the vector");

      // From its place in the whole, and from elsewhere.
      for (const bool inside : {true, false}) {
        DeviceVector elsewhere(device, type, part);
        vector.set(std::vector<double>(static_cast<std::size_t>(vector.tensor().elements), -1));
        const Tensor own = inside ? vector.part(rank * part, part) : elsewhere.tensor();
        DeviceVector place(device, type, part, own.data);
        place.set(values_of(rank, part));
        run({.kind = TransferKind::all_gather, .whole = vector.part(0, whole), .own = own});
        got = vector.get();
        for (Elements i = 0; i < whole; ++i) {
          require(got[static_cast<std::size_t>(i)] == value_of(i / part, i % part), "all_gather");
        }
      }
      for (const std::int64_t root : {std::int64_t{0}, ranks - 1}) {
        vector.set(values_of(rank, vector.tensor().elements));
        run({.kind = TransferKind::broadcast, .whole = vector.tensor(), .other = root});
        require(vector.get() == values_of(root, vector.tensor().elements), "broadcast");
      }
    }
  }
}

// Each rank sends to the next one; the last one, which receives first, so that not all wait.
inline void check_messages(BareDevice& device, DataPlane& plane) {
  const std::int64_t ranks = plane.size();
  const std::int64_t rank = plane.rank();
  DeviceVector out(device, DataType::fp32, 33);
  DeviceVector in(device, DataType::fp32, 33);
  out.set(values_of(rank, 33));
  const Transfer send{.kind = TransferKind::send, .whole = out.tensor(), .other = (rank + 1) % ranks};
  const Transfer receive{
      .kind = TransferKind::receive, .whole = in.tensor(), .other = (rank + ranks - 1) % ranks};
  for (int time = 0; time < 2; ++time) {
    const bool last = rank == ranks - 1;
    plane.enqueue(last ? receive : send, device, Stream::communication, {});
    plane.enqueue(last ? send : receive, device, Stream::communication, {});
  }
  device.synchronize();
  require(in.get() == values_of((rank + ranks - 1) % ranks, 33), "message");
}

// Of what the stream still writes when the call is made.
inline void check_late_inputs(BareDevice& device, DataPlane& plane) {
  const std::int64_t before = (plane.rank() + plane.size() - 1) % plane.size();
  DeviceVector source(device, DataType::fp32, 12);
  DeviceVector summed(device, DataType::fp32, 12);
  DeviceVector sent(device, DataType::fp32, 12);
  DeviceVector received(device, DataType::fp32, 12);
  source.set(std::vector<double>(12, static_cast<double>(plane.rank() + 1)));
  cudaStream_t stream = device.start(Stream::communication, {});
  for (const DeviceVector* vector : {&summed, &sent}) {
    cudaMemcpyAsync(vector->tensor().data, source.tensor().data, 48, cudaMemcpyDeviceToDevice, stream);
    if (vector == &summed) {
      plane.enqueue({.kind = TransferKind::all_reduce, .whole = summed.tensor()}, device,
                    Stream::communication, {});
    }
  }
  const Transfer send{
      .kind = TransferKind::send, .whole = sent.tensor(), .other = (plane.rank() + 1) % plane.size()};
  const Transfer receive{.kind = TransferKind::receive, .whole = received.tensor(), .other = before};
  const bool last = plane.rank() == plane.size() - 1;
  plane.enqueue(last ? receive : send, device, Stream::communication, {});
  plane.enqueue(last ? send : receive, device, Stream::communication, {});
  device.synchronize();
  const auto sum = static_cast<double>(plane.size() * (plane.size() + 1) / 2);
  require(summed.get() == std::vector<double>(12, sum), "the sum of late inputs");
  require(received.get() == std::vector<double>(12, static_cast<double>(before + 1)),
          "a message that was late");
}

// Sums of two groups on two streams of which neither waits for the other, as a step has them.
inline void check_two_streams(BareDevice& device, std::span<const std::unique_ptr<DataPlane>> planes) {
  DeviceVector first(device, DataType::fp32, 10);
  DeviceVector second(device, DataType::fp32, 10);
  first.set(std::vector<double>(10, 1));
  second.set(std::vector<double>(10, 1));
  const Transfer of_first{.kind = TransferKind::all_reduce, .whole = first.tensor()};
  const Transfer of_second{.kind = TransferKind::all_reduce, .whole = second.tensor()};
  for (int time = 0; time < 3; ++time) {
    planes[0]->enqueue(of_first, device, Stream::tensor, {});
    planes[1]->enqueue(of_second, device, Stream::communication, {});
  }
  device.synchronize();
  const auto cubed = [](std::int64_t n) { return std::vector<double>(10, static_cast<double>(n * n * n)); };
  require(first.get() == cubed(planes[0]->size()), "sums on the tensor stream");
  require(second.get() == cubed(planes[1]->size()), "sums on the communication stream");
}

// A call that was captured sums what is in memory when it is replayed.
inline void check_captured(BareDevice& device, DataPlane& plane, std::byte* at = nullptr) {
  DeviceVector vector(device, DataType::fp32, 12, at);
  const auto ranks = static_cast<double>(plane.size());
  vector.set(std::vector<double>(12, 1));
  cudaStream_t on = device.start(Stream::communication, {});
  cuda::Recordings graphs;
  graphs.begin(on);
  plane.enqueue({.kind = TransferKind::all_reduce, .whole = vector.tensor()}, device, Stream::communication,
                {});
  const Device::Recording graph = graphs.end(0);
  for (int i = 0; i < 3; ++i) (void)graphs.replay(graph, on);
  device.synchronize();
  require(vector.get() == std::vector<double>(12, ranks * ranks * ranks), "three replays are no three sums");
  vector.set(std::vector<double>(12, 5));
  (void)graphs.replay(graph, on);
  device.synchronize();
  require(vector.get() == std::vector<double>(12, 5 * ranks), "a replay is of old numbers");
}

// What a group of n ranks moves of a vector is in data_plane.hpp; here each rank's part of 12 numbers of a group of 3.
inline void check_ledger(BareDevice& device, DataPlane& plane) {
  DeviceVector vector(device, DataType::fp32, 12);
  vector.set(values_of(plane.rank(), 12));
  const auto own = vector.part(plane.rank() * 4, 4);
  const std::vector<Transfer> transfers = {
      {.kind = TransferKind::all_reduce, .whole = vector.tensor()},
      {.kind = TransferKind::reduce_scatter, .whole = vector.tensor()},
      {.kind = TransferKind::all_gather, .whole = vector.tensor(), .own = own},
      {.kind = TransferKind::broadcast, .whole = vector.tensor(), .other = 1},
      {.kind = TransferKind::broadcast, .whole = vector.tensor(), .other = 1}};
  for (const Transfer& transfer : transfers) plane.enqueue(transfer, device, Stream::communication, {});
  device.synchronize();
  const Ledger& ledger = plane.ledger();
  require(ledger.totals.size() == 4 && ledger.totals[3].calls == 2 && ledger.totals[3].bytes == 96, "totals");
  require(ledger.last.size() == 5 && ledger.last[4].sequence == 4 && ledger.last[4].elements == 12,
          "last calls");
  require(plane.moved().of(TransferKind::reduce_scatter) == 2 * 16, "moved by reduce_scatter");
  require(plane.moved().of(TransferKind::all_gather) == 2 * 16, "moved by all_gather");
  require(plane.moved().of(TransferKind::broadcast) == (plane.rank() == 1 ? 0 : 2 * 48),
          "moved by broadcast");
}

}  // namespace zeroplan::executor::test
