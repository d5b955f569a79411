#include "executor/communicator/ledger.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string_view>

namespace zeroplan::executor {

using program::DataType;

namespace {

constexpr std::size_t kLastCalls = 16;

std::string_view name_of(Call::Kind kind) {
  switch (kind) {
    case Call::Kind::all_reduce:
      return "all_reduce";
    case Call::Kind::reduce_scatter:
      return "reduce_scatter";
    case Call::Kind::all_gather:
      return "all_gather";
    case Call::Kind::broadcast:
      return "broadcast";
    case Call::Kind::barrier:
      return "barrier";
    case Call::Kind::split:
      return "split";
    case Call::Kind::message:
      return "message";
  }
  return "?";
}

Tensor as_tensor(std::byte* data, std::size_t bytes) {
  return {.data = data, .type = DataType::uint8, .elements = static_cast<Elements>(bytes)};
}

void require_memory(const Tensor& tensor, Call::Kind kind) {
  if (tensor.elements < 0 || (tensor.elements > 0 && !tensor)) {
    throw std::logic_error(fmt::format("{}: {} elements without memory", name_of(kind), tensor.elements));
  }
}

void require_sum(const Tensor& tensor, Call::Kind kind) {
  if (tensor.type == DataType::int32 || tensor.type == DataType::uint8) {
    throw std::logic_error(fmt::format("{}: {} cannot be reduced, only fp32, fp16 and bf16 can",
                                       name_of(kind), name_of(tensor.type)));
  }
}

void require_partitions(const Tensor& whole, std::int64_t size, Call::Kind kind) {
  if (whole.elements % size != 0) {
    throw std::logic_error(
        fmt::format("{}: {} elements are not {} equal partitions", name_of(kind), whole.elements, size));
  }
}

}  // namespace

std::string_view name_of(TransferKind kind) {
  switch (kind) {
    case TransferKind::send:
      return "send";
    case TransferKind::receive:
      return "receive";
    default:
      return program::name_of(program::kCollectiveOps[static_cast<std::size_t>(kind)]);
  }
}

std::string text_of(const Call& call) {
  const bool is_message = call.kind == Call::Kind::message;
  std::string text = is_message ? fmt::format("message {}", call.sequence)
                                : fmt::format("call {}, {}", call.sequence, name_of(call.kind));
  if (call.kind == Call::Kind::barrier || call.kind == Call::Kind::split) return text;
  if (call.kind == Call::Kind::all_reduce) text += call.reduction == Reduction::sum ? " (sum)" : " (maximum)";
  if ((call.kind == Call::Kind::broadcast || is_message) && call.root >= 0)
    text += fmt::format(" from rank {}", call.root);
  text += call.elements < 0 ? " of " : fmt::format(" of {} ", call.elements);
  return text.append(name_of(call.type));
}

Call all_reduce_call(const Tensor& whole, Reduction reduction) {
  require_memory(whole, Call::Kind::all_reduce);
  require_sum(whole, Call::Kind::all_reduce);
  return {
      .kind = Call::Kind::all_reduce, .reduction = reduction, .type = whole.type, .elements = whole.elements};
}

Call reduce_scatter_call(const Tensor& whole, std::int64_t size) {
  require_memory(whole, Call::Kind::reduce_scatter);
  require_sum(whole, Call::Kind::reduce_scatter);
  require_partitions(whole, size, Call::Kind::reduce_scatter);
  return {.kind = Call::Kind::reduce_scatter, .type = whole.type, .elements = whole.elements};
}

Call all_gather_call(const Tensor& own, const Tensor& whole, std::int64_t rank, std::int64_t size) {
  require_memory(own, Call::Kind::all_gather);
  require_memory(whole, Call::Kind::all_gather);
  require_partitions(whole, size, Call::Kind::all_gather);
  if (own.type != whole.type || own.elements != whole.elements / size) {
    throw std::logic_error(fmt::format("all_gather: own partition of {} {} for a whole of {} {} on {} ranks",
                                       own.elements, name_of(own.type), whole.elements, name_of(whole.type),
                                       size));
  }
  const std::less<const std::byte*> before;  // `<` on pointers into different objects is unspecified
  const bool apart =
      !before(own.data, whole.data + whole.bytes()) || !before(whole.data, own.data + own.bytes());
  if (own.elements > 0 && !apart && own.data != whole.data + rank * own.bytes()) {
    throw std::logic_error("all_gather: own partition is inside the whole, but not at its place");
  }
  return {.kind = Call::Kind::all_gather, .type = whole.type, .elements = whole.elements};
}

Call broadcast_call(const Tensor& whole, std::int64_t root, std::int64_t size) {
  require_memory(whole, Call::Kind::broadcast);
  if (root < 0 || root >= size) {
    throw std::logic_error(fmt::format("broadcast: no rank {} among {}", root, size));
  }
  return {.kind = Call::Kind::broadcast, .type = whole.type, .elements = whole.elements, .root = root};
}

Call message_call(const Tensor& tensor, std::int64_t from, std::int64_t to, std::int64_t size) {
  require_memory(tensor, Call::Kind::message);
  if (from == to || std::min(from, to) < 0 || std::max(from, to) >= size) {
    throw std::logic_error(fmt::format("message: from rank {} to rank {} among {}", from, to, size));
  }
  return {.kind = Call::Kind::message, .type = tensor.type, .elements = tensor.elements, .root = from};
}

Call call_of(const Transfer& transfer, std::int64_t rank, std::int64_t size) {
  switch (transfer.kind) {
    case TransferKind::all_reduce:
      return all_reduce_call(transfer.whole, transfer.reduction);
    case TransferKind::reduce_scatter:
      return reduce_scatter_call(transfer.whole, size);
    case TransferKind::all_gather:
      return all_gather_call(transfer.own, transfer.whole, rank, size);
    case TransferKind::broadcast:
      return broadcast_call(transfer.whole, transfer.other, size);
    case TransferKind::send:
      return message_call(transfer.whole, rank, transfer.other, size);
    case TransferKind::receive:
      break;
  }
  return message_call(transfer.whole, transfer.other, rank, size);
}

Call gather_call(std::span<const std::byte> own, std::span<std::byte> all, std::int64_t size) {
  if (all.size() != own.size() * static_cast<std::size_t>(size)) {
    throw std::logic_error(
        fmt::format("gather: {} bytes for {} of each of {} ranks", all.size(), own.size(), size));
  }
  return {
      .kind = Call::Kind::all_gather, .type = DataType::uint8, .elements = static_cast<Elements>(all.size())};
}

Call share_call(std::span<std::byte> data, std::int64_t root, std::int64_t size) {
  return broadcast_call(as_tensor(data.data(), data.size()), root, size);
}

void enter(Ledger& ledger, TransferKind kind, const Call& call) {
  auto total = std::find_if(ledger.totals.begin(), ledger.totals.end(),
                            [&](const Ledger::Total& t) { return t.kind == kind; });
  if (total == ledger.totals.end()) total = ledger.totals.insert(total, {.kind = kind});
  ++total->calls;
  total->bytes += call.elements * program::bytes_of(call.type);
  if (ledger.last.size() == kLastCalls) ledger.last.erase(ledger.last.begin());
  ledger.last.push_back(
      {.sequence = call.sequence, .kind = kind, .elements = call.elements, .type = call.type});
}

Bytes carried_bytes(TransferKind kind, const Call& call, std::int64_t rank, std::int64_t size) {
  const Bytes element = program::bytes_of(call.type);
  switch (kind) {
    case TransferKind::all_reduce:
      return 2 * (size - 1) * share_of(call.elements, size, rank).count * element;
    case TransferKind::reduce_scatter:
    case TransferKind::all_gather:
      return (size - 1) * (call.elements / size) * element;
    case TransferKind::broadcast:
      return rank == call.root ? 0 : call.elements * element;
    case TransferKind::send:
      return 0;
    case TransferKind::receive:
      break;
  }
  return call.elements * element;
}

Share share_of(Elements elements, std::int64_t size, std::int64_t rank) {
  const Elements blocks = div_ceil(elements, kShareAlignment);
  const auto start = [&](std::int64_t r) {
    const Elements block = blocks / size * r + std::min<Elements>(r, blocks % size);
    return std::min(elements, block * kShareAlignment);
  };
  return {.first = start(rank), .count = start(rank + 1) - start(rank)};
}

}  // namespace zeroplan::executor
