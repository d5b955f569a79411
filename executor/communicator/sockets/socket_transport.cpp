#include "executor/communicator/sockets/socket_transport.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "executor/error.hpp"

namespace zeroplan::executor::sockets {

namespace {

// What is left of a header and of the bytes behind it.
struct Pieces {
  std::array<iovec, 2> pieces{};
  msghdr message{};

  Pieces(void* header, void* data, std::size_t bytes, std::size_t done) {
    std::size_t count = 0;
    if (done < sizeof(Header)) {
      pieces[count++] = {.iov_base = static_cast<std::byte*>(header) + done,
                         .iov_len = sizeof(Header) - done};
    }
    const std::size_t data_done = done < sizeof(Header) ? 0 : done - sizeof(Header);
    if (data_done < bytes) {
      pieces[count++] = {.iov_base = static_cast<std::byte*>(data) + data_done, .iov_len = bytes - data_done};
    }
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
  }
};

Call call_of(const Header& header) {
  return {.kind = static_cast<Call::Kind>(header.kind),
          .reduction = static_cast<Reduction>(header.reduction),
          .type = static_cast<program::DataType>(header.type),
          .elements = header.elements,
          .root = header.root,
          .sequence = header.sequence};
}

// Another number for every group that comes of `group`, its call and the smallest member: steps of
// splitmix64, whose finalizer mixes every bit into every other.
std::uint64_t child_group(std::uint64_t group, std::uint64_t sequence, std::int64_t smallest) {
  const auto mixed = [](std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
  };
  return mixed(mixed(mixed(group + 1) + sequence) + static_cast<std::uint64_t>(smallest));
}

}  // namespace

void Channel::send(const Header& header, const std::byte* from) {
  outgoing_.push_back({.header = header, .from = from});
}

void Channel::receive(std::byte* to, Bytes bytes) {
  incoming_.push_back({.header = {}, .to = to, .bytes = bytes});
}

bool Channel::send_some() {
  Outgoing& out = outgoing_[next_outgoing_];
  const auto bytes = static_cast<std::size_t>(out.header.bytes);
  // sendmsg() takes what it only reads as if it wrote.
  auto* from = const_cast<std::byte*>(out.from);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  const Pieces pieces(&out.header, from, bytes, out.sent);
  const ssize_t sent = ::sendmsg(socket_.get(), &pieces.message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) {
    closed_ = closed_ || !would_block(errno);
    return false;
  }
  const std::size_t before = std::max(out.sent, sizeof(Header));
  out.sent += static_cast<std::size_t>(sent);
  sent_bytes_ += static_cast<Bytes>(std::max(out.sent, sizeof(Header)) - before);
  if (out.sent == sizeof(Header) + bytes && ++next_outgoing_ == outgoing_.size()) {
    outgoing_.clear();
    next_outgoing_ = 0;
  }
  return true;
}

bool Channel::receive_some(std::optional<Header>& header) {
  Incoming& in = incoming_[next_incoming_];
  const auto bytes = static_cast<std::size_t>(in.bytes);
  Pieces pieces(&in.header, in.to, bytes, in.received);
  const ssize_t received = ::recvmsg(socket_.get(), &pieces.message, MSG_DONTWAIT);
  if (received <= 0) {
    closed_ = closed_ || received == 0 || !would_block(errno);
    return false;
  }
  const bool had_header = in.received >= sizeof(Header);
  in.received += static_cast<std::size_t>(received);
  if (!had_header && in.received >= sizeof(Header)) {
    header = in.header;
    expected_bytes_ = in.bytes;
  }
  if (in.received == sizeof(Header) + bytes && ++next_incoming_ == incoming_.size()) {
    incoming_.clear();
    next_incoming_ = 0;
  }
  return true;
}

SocketTransport::SocketTransport(std::shared_ptr<Session> session, std::uint64_t group,
                                 std::vector<std::int64_t> members, std::int64_t rank)
    : session_(std::move(session)), group_(group), members_(std::move(members)), rank_(rank) {}

Header SocketTransport::header_of(const Call& call, Bytes bytes) const {
  return {.group = group_,
          .sequence = call.sequence,
          .elements = call.elements,
          .root = call.root,
          .bytes = bytes,
          .kind = static_cast<std::uint8_t>(call.kind),
          .reduction = static_cast<std::uint8_t>(call.reduction),
          .type = static_cast<std::uint8_t>(call.type)};
}

void SocketTransport::send(const Call& call, const std::byte* from, Bytes bytes, std::int64_t to) {
  channel(to).send(header_of(call, bytes), from);
  open_.push_back(to);
}

void SocketTransport::receive(std::byte* to, Bytes bytes, std::int64_t from) {
  channel(from).receive(to, bytes);
  open_.push_back(from);
}

void SocketTransport::wait(const Call& call) {
  std::sort(open_.begin(), open_.end());
  open_.erase(std::unique(open_.begin(), open_.end()), open_.end());
  auto last_move = Clock::now();
  while (true) {
    // A run that was stopped may have left messages half sent.
    if (session_->control.stopped()) stop("", {});
    bool moved = false;
    for (const std::int64_t rank : open_) moved = move_some(call, rank) || moved;
    std::erase_if(open_, [&](std::int64_t r) { return !channel(r).sending() && !channel(r).receiving(); });
    if (open_.empty()) return;
    if (moved) {
      last_move = Clock::now();
    } else if (Clock::now() - last_move > session_->options.timeout) {
      stop_after_timeout(call);
    } else {
      wait_until_ready(last_move + session_->options.timeout);
    }
  }
}

Bytes SocketTransport::sent_bytes() const {
  Bytes bytes = 0;
  for (std::int64_t rank = 0; rank < size(); ++rank) {
    if (rank != rank_) bytes += channel(rank).sent_bytes();
  }
  return bytes;
}

bool SocketTransport::move_some(const Call& call, std::int64_t rank) {
  Channel& channel = this->channel(rank);
  bool moved = channel.sending() && channel.send_some();
  if (channel.receiving()) {
    std::optional<Header> header;
    moved = channel.receive_some(header) || moved;
    if (header) require_same(call, *header, channel.expected_bytes(), rank);
  }
  if (channel.closed()) stop(fmt::format("rank {} ended without a word", member(rank)), {member(rank)});
  return moved;
}

void SocketTransport::wait_until_ready(Clock::time_point deadline) {
  std::vector<pollfd> descriptors{ready_when(session_->control.stopped_descriptor(), true, false)};
  for (const std::int64_t rank : open_) {
    const Channel& c = channel(rank);
    descriptors.push_back(ready_when(c.descriptor(), c.receiving(), c.sending()));
  }
  (void)poll_until(descriptors, deadline);
}

void SocketTransport::require_same(const Call& call, const Header& theirs, Bytes bytes,
                                   std::int64_t rank) const {
  if (theirs == header_of(call, bytes)) return;
  std::string text = text_of(call_of(theirs));
  if (theirs.group != group_) text += " of another group";
  stop(exchange::out_of_step_text(member(rank_), call, member(rank), text), {member(rank_), member(rank)});
}

void SocketTransport::stop_after_timeout(const Call& call) const {
  std::vector<std::int64_t> missing;
  missing.reserve(open_.size());
  for (const std::int64_t rank : open_) missing.push_back(member(rank));
  std::sort(missing.begin(), missing.end());
  stop(exchange::missing_text(missing, session_->options.timeout, call, member(rank_)), missing);
}

void SocketTransport::stop(std::string text, std::vector<std::int64_t> about) const {
  FailureReport report = report_of(Failure::Kind::communication, std::move(text), std::move(about));
  throw CommunicationError(session_->control.stop(std::move(report)).text);
}

std::unique_ptr<exchange::Transport> SocketTransport::split(const Call& call,
                                                            const std::vector<std::int64_t>& ranks) {
  std::vector<std::int64_t> members;
  members.reserve(ranks.size());
  for (const std::int64_t r : ranks) members.push_back(member(r));
  const std::int64_t rank = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
  const std::uint64_t group =
      child_group(group_, call.sequence, *std::min_element(members.begin(), members.end()));
  return std::make_unique<SocketTransport>(session_, group, std::move(members), rank);
}

void SocketTransport::abort(const std::string& reason) {
  const std::int64_t own = member(rank_);
  session_->control.report(
      report_of(Failure::Kind::communication, fmt::format("rank {}: {}", own, reason), {own}));
}

void SocketTransport::set_activity(Activity activity) { session_->control.set_activity(std::move(activity)); }

}  // namespace zeroplan::executor::sockets
