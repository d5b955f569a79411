#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "executor/half.hpp"
#include "tests/emulation/nccl/clique.hpp"
#include "tests/emulation/runtime/queue.hpp"

namespace zeroplan::emulation {

namespace {

float load(const std::byte* memory, std::size_t i, ncclDataType_t type) {
  if (type == ncclFloat32) {
    float value = 0;
    std::memcpy(&value, memory + i * sizeof value, sizeof value);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, memory + i * sizeof bits, sizeof bits);
  return type == ncclFloat16 ? executor::float_from_fp16(bits) : executor::float_from_bf16(bits);
}

void store(std::byte* memory, std::size_t i, ncclDataType_t type, float value) {
  if (type == ncclFloat32) {
    std::memcpy(memory + i * sizeof value, &value, sizeof value);
    return;
  }
  const std::uint16_t bits =
      type == ncclFloat16 ? executor::fp16_from_float(value) : executor::bf16_from_float(value);
  std::memcpy(memory + i * sizeof bits, &bits, sizeof bits);
}

float rounded(float value, ncclDataType_t type) {
  std::byte memory[sizeof(float)];
  store(memory, 0, type, value);
  return load(memory, 0, type);
}

// Element `i` of all ranks' vectors, of which `part` is the rank whose part of the vector it is in.
float reduced(const Collective& call, std::size_t i, std::size_t part, NcclSums sums) {
  const std::size_t ranks = call.parts.size();
  const bool ring = sums == NcclSums::ring;
  const std::size_t first = ring ? part + 1 : 0;
  float result = load(call.parts[first % ranks].send, i, call.text.type);
  for (std::size_t hop = 1; hop < ranks; ++hop) {
    const float next = load(call.parts[(first + hop) % ranks].send, i, call.text.type);
    result = call.text.reduction == ncclSum ? result + next : std::fmax(result, next);
    if (ring) result = rounded(result, call.text.type);
  }
  return result;
}

void compute(Collective& call, NcclSums sums) {
  const std::size_t ranks = call.parts.size();
  const std::size_t count = call.text.count;
  const std::size_t size = bytes_of(call.text.type);
  const auto copy_of = [&](std::size_t part) {
    const std::byte* from = call.parts[part].send;
    return std::vector<std::byte>(from, from + count * size);
  };
  switch (call.text.kind) {
    case CallKind::all_reduce: {
      std::vector<std::byte> all(count * size);
      for (std::size_t i = 0; i < count; ++i) {
        store(all.data(), i, call.text.type, reduced(call, i, i * ranks / count, sums));
      }
      for (Collective::Part& part : call.parts) part.result = all;
      break;
    }
    case CallKind::reduce_scatter:
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        std::vector<std::byte>& own = call.parts[rank].result;
        own.resize(count * size);
        for (std::size_t i = 0; i < count; ++i) {
          store(own.data(), i, call.text.type, reduced(call, rank * count + i, rank, sums));
        }
      }
      break;
    case CallKind::all_gather: {
      std::vector<std::byte> all;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const std::vector<std::byte> part = copy_of(rank);
        all.insert(all.end(), part.begin(), part.end());
      }
      for (Collective::Part& part : call.parts) part.result = all;
      break;
    }
    case CallKind::broadcast: {
      const std::vector<std::byte> all = copy_of(static_cast<std::size_t>(call.text.root));
      for (Collective::Part& part : call.parts) part.result = all;
      break;
    }
    case CallKind::message:
      call.parts[1].result = copy_of(0);
      break;
  }
}

// A device that has room for one collective: which one each waits for, over the devices that have one, must not come back.
std::string circle_from(int device) {
  const Network& net = network();
  std::string text;
  int at = device;
  for (std::size_t step = 0; step <= net.in_flight.size(); ++step) {
    const auto holder = net.in_flight.find(at);
    if (holder == net.in_flight.end()) return {};
    const Collective& call = *holder->second;
    const auto missing =
        std::find_if(call.parts.begin(), call.parts.end(), [&](const Collective::Part& part) {
          const auto other = net.in_flight.find(part.device);
          return part.called && !part.at_head && other != net.in_flight.end() &&
                 other->second != holder->second;
        });
    if (missing == call.parts.end()) return {};
    text += fmt::format("{}device {} runs {} of {}, which waits for device {}", text.empty() ? "" : "; ", at,
                        text_of(call.text), call.name, missing->device);
    at = missing->device;
    if (at == device) return "communicators wait for each other: " + text;
  }
  return {};
}

struct Member {
  std::shared_ptr<Clique> clique;
  std::shared_ptr<bool> aborted;
  int device = 0;
};

// Whether a part of a collective that is at the head of its stream may run.
bool ready(const Member& member, const std::shared_ptr<Collective>& call, std::size_t part) {
  Network& net = network();
  const std::lock_guard lock(net.mutex);
  if (*member.aborted) return true;
  if (!member.clique->broken.empty()) return false;
  if (net.behaviour.one_in_flight) {
    const auto [holder, taken] = net.in_flight.emplace(member.device, call);
    if (!taken && holder->second != call) {
      const std::string circle = circle_from(member.device);
      if (circle.empty()) return false;
      net.problem(ncclInternalError, circle);
      net.break_clique(*member.clique, circle, ncclInternalError);
      return false;
    }
  }
  Collective::Part& own = call->parts[part];
  own.at_head = true;
  return std::all_of(call->parts.begin(), call->parts.end(), [&](const Collective::Part& other) {
    return !other.failed && (other.rounds > own.rounds || (other.at_head && other.rounds == own.rounds));
  });
}

void run(const Member& member, const std::shared_ptr<Collective>& call, std::size_t part) {
  Network& net = network();
  const std::lock_guard lock(net.mutex);
  const auto held = net.in_flight.find(member.device);
  if (held != net.in_flight.end() && held->second == call) net.in_flight.erase(held);
  if (*member.aborted) return;
  Collective::Part& own = call->parts[part];
  if (call->computed == own.rounds) {
    compute(*call, net.behaviour.sums);
    ++call->computed;
  }
  ++own.rounds;
  own.at_head = false;
  if (!own.result.empty()) std::memcpy(own.receive, own.result.data(), own.result.size());
}

std::ptrdiff_t offset_in(const std::optional<Window>& window, const void* pointer) {
  if (!window) return -1;
  const auto* at = static_cast<const std::byte*>(pointer);
  const bool inside = at >= window->begin && at < window->begin + window->bytes;
  return inside ? at - window->begin : -1;
}

// Of the rank's next call that all ranks make, or of the next message of the two.
std::shared_ptr<Collective> next_call(ncclComm& communicator, const CallText& text, int peer) {
  Clique& clique = *communicator.clique;
  if (text.kind != CallKind::message) {
    const std::size_t number = communicator.calls++;
    std::shared_ptr<Collective>& call = clique.calls[number];
    if (!call) {
      call = std::make_shared<Collective>();
      call->name = clique.name;
      call->text = text;
      call->parts.resize(static_cast<std::size_t>(clique.size));
    }
    std::shared_ptr<Collective> own = call;
    const auto called =
        std::count_if(own->parts.begin(), own->parts.end(), [](const auto& part) { return part.called; });
    if (called + 1 == clique.size) clique.calls.erase(number);
    return own;
  }
  const bool sends = text.root == communicator.rank;
  auto& waiting =
      clique.messages[sends ? std::pair(communicator.rank, peer) : std::pair(peer, communicator.rank)];
  if (!waiting.empty() && !waiting.front()->parts[sends ? 0 : 1].called) {
    std::shared_ptr<Collective> own = waiting.front();
    waiting.pop_front();
    return own;
  }
  auto own = std::make_shared<Collective>();
  own->name = clique.name;
  own->text = text;
  own->parts.resize(2);
  waiting.push_back(own);
  return own;
}

ncclResult_t queue(const char* name, const CallText& what, const void* send, std::size_t send_count,
                   void* receive, std::size_t receive_count, ncclComm_t communicator, int peer,
                   cudaStream_t stream) {
  const int device = device_of(stream);
  const auto* const source = host(static_cast<const std::byte*>(send));
  auto* const destination = host(static_cast<std::byte*>(receive));
  Network& net = network();
  const std::lock_guard lock(net.mutex);
  if (const ncclResult_t wrong = check_usable(communicator, name); wrong != ncclSuccess) return wrong;
  if (device != communicator->device) {
    return net.problem(ncclInvalidUsage, fmt::format("{} on a stream of another device", name));
  }
  const bool reduces = what.kind == CallKind::all_reduce || what.kind == CallKind::reduce_scatter;
  if (reduces && (what.type == ncclUint8 || what.type == ncclInt32)) {
    return net.problem(ncclInvalidArgument, "sums of integers are not emulated");
  }
  CallText text = what;
  if (text.kind != CallKind::message) {
    // A rank's own part of an all-gather and of a reduce-scatter is at another place on each.
    if (text.kind != CallKind::all_gather) text.send_offset = offset_in(communicator->window, send);
    if (text.kind != CallKind::reduce_scatter) text.receive_offset = offset_in(communicator->window, receive);
  }
  const std::shared_ptr<Collective> call = next_call(*communicator, text, peer);
  const auto part = static_cast<std::size_t>(
      text.kind == CallKind::message ? (text.root == communicator->rank ? 0 : 1) : communicator->rank);
  Collective::Part& own = call->parts[part];
  own.called = true;
  own.device = device;
  own.send = source;
  own.receive = destination;
  if (call->text != text) {
    const std::string why = fmt::format("ranks of {} are out of step: rank {} calls {}, another rank {}",
                                        call->name, communicator->rank, text_of(text), text_of(call->text));
    net.break_clique(*communicator->clique, why, ncclInternalError);
    return net.problem(ncclInvalidUsage, why);
  }
  if (net.calls_to_failure > 0 && --net.calls_to_failure == 0) {
    own.failed = true;
    communicator->error = net.failure;
  }
  const std::size_t size = bytes_of(text.type);
  std::vector<Range> ranges;
  if (receive_count > 0) ranges.push_back({receive, receive_count * size, false, true});
  if (send_count > 0) ranges.push_back({send, send_count * size, true, false});
  const Member member{communicator->clique, communicator->aborted, device};
  // As NCCL's own thread launches it, later.
  communicator->polls_left = net.behaviour.polls;
  communicator->issue = [=] {
    const cudaError_t error = enqueue(
        stream, name, ranges, [=] { run(member, call, part); }, [=] { return ready(member, call, part); });
    return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
  };
  return ncclInProgress;
}

}  // namespace

std::size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      break;
  }
  return 4;
}

std::string text_of(const CallText& call) {
  static constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                           "message"};
  std::string text = fmt::format("{} of {} elements of type {}", kNames[static_cast<std::size_t>(call.kind)],
                                 call.count, static_cast<int>(call.type));
  if (call.kind == CallKind::all_reduce) text += call.reduction == ncclSum ? ", sum" : ", maximum";
  if (call.kind == CallKind::broadcast || call.kind == CallKind::message)
    text += fmt::format(", from rank {}", call.root);
  if (call.send_offset >= 0 || call.receive_offset >= 0) {
    text += fmt::format(", {} and {} bytes into the window", call.send_offset, call.receive_offset);
  }
  return text;
}

}  // namespace zeroplan::emulation

using namespace zeroplan::emulation;  // NOLINT(google-build-using-namespace): what follows is its C interface

extern "C" {

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return queue("ncclAllReduce",
               {.kind = CallKind::all_reduce, .count = count, .type = datatype, .reduction = op}, sendbuff,
               count, recvbuff, count, comm, 0, stream);
}

ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  const auto ranks = comm != nullptr ? static_cast<std::size_t>(comm->clique->size) : 0;
  return queue("ncclReduceScatter",
               {.kind = CallKind::reduce_scatter, .count = recvcount, .type = datatype, .reduction = op},
               sendbuff, recvcount * ranks, recvbuff, recvcount, comm, 0, stream);
}

ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream) {
  const auto ranks = comm != nullptr ? static_cast<std::size_t>(comm->clique->size) : 0;
  return queue("ncclAllGather", {.kind = CallKind::all_gather, .count = sendcount, .type = datatype},
               sendbuff, sendcount, recvbuff, sendcount * ranks, comm, 0, stream);
}

ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  const bool sends = comm != nullptr && comm->rank == root;
  return queue("ncclBroadcast", {.kind = CallKind::broadcast, .count = count, .type = datatype, .root = root},
               sendbuff, sends ? count : 0, recvbuff, count, comm, 0, stream);
}

ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const int own = comm != nullptr ? comm->rank : 0;
  return queue("ncclSend", {.kind = CallKind::message, .count = count, .type = datatype, .root = own},
               sendbuff, count, nullptr, 0, comm, peer, stream);
}

ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return queue("ncclRecv", {.kind = CallKind::message, .count = count, .type = datatype, .root = peer},
               nullptr, 0, recvbuff, count, comm, peer, stream);
}

}  // extern "C"
