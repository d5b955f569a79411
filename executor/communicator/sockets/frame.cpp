#include "executor/communicator/sockets/frame.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "executor/error.hpp"

namespace zeroplan::executor::sockets {

namespace {

struct Prefix {
  std::uint32_t bytes = 0;  // of the body
  std::uint32_t kind = 0;
};

// A hello fits; what asks for more is no rank of ours.
constexpr std::uint32_t kLongestOfStranger = 1U << 16;
// The address table of thousands of ranks fits.
constexpr std::uint32_t kLongestBody = 1U << 20;

}  // namespace

Frame& Frame::put(std::int64_t number) {
  body_.append(reinterpret_cast<const char*>(&number), sizeof number);
  return *this;
}

Frame& Frame::put(std::string_view text) {
  put(static_cast<std::int64_t>(text.size()));
  body_.append(text);
  return *this;
}

std::string_view Frame::take(std::size_t bytes) {
  if (bytes > body_.size() - read_) throw CommunicationError("a message of the run's control is too short");
  const std::string_view taken(body_.data() + read_, bytes);
  read_ += bytes;
  return taken;
}

std::int64_t Frame::number() {
  std::int64_t number = 0;
  std::memcpy(&number, take(sizeof number).data(), sizeof number);
  return number;
}

std::string Frame::text() {
  const auto bytes = static_cast<std::size_t>(number());
  return std::string(take(bytes));
}

void FrameStream::send(const Frame& frame) {
  if (!open()) return;
  const Prefix prefix{.bytes = static_cast<std::uint32_t>(frame.body().size()),
                      .kind = static_cast<std::uint32_t>(frame.kind())};
  out_.append(reinterpret_cast<const char*>(&prefix), sizeof prefix);
  out_.append(frame.body());
  flush();
}

void FrameStream::flush() {
  while (has_to_write()) {
    const ssize_t sent = ::send(socket_.get(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      // Not closed by that: what the other side said before it ended may still be read.
      if (!would_block(errno)) out_.clear();
      return;
    }
    out_.erase(0, static_cast<std::size_t>(sent));
  }
}

void FrameStream::end_sending() {
  if (open()) (void)::shutdown(socket_.get(), SHUT_WR);
}

std::optional<Frame> FrameStream::receive() {
  while (open()) {
    Prefix prefix;
    if (in_.size() >= sizeof prefix) std::memcpy(&prefix, in_.data(), sizeof prefix);
    if (prefix.bytes > (trusted_ ? kLongestBody : kLongestOfStranger) ||
        prefix.kind > static_cast<std::uint32_t>(FrameKind::all_returned)) {
      closed_ = true;
      break;
    }
    const std::size_t whole = sizeof prefix + prefix.bytes;
    if (in_.size() == whole) {
      Frame frame(static_cast<FrameKind>(prefix.kind), in_.substr(sizeof prefix));
      in_.clear();
      return frame;
    }
    std::array<char, 4096> chunk{};
    const std::size_t missing = std::min(chunk.size(), whole - in_.size());
    const ssize_t got = ::recv(socket_.get(), chunk.data(), missing, MSG_DONTWAIT);
    if (got < 0 && would_block(errno)) break;
    if (got <= 0) {
      closed_ = true;
    } else {
      in_.append(chunk.data(), static_cast<std::size_t>(got));
    }
  }
  return std::nullopt;
}

}  // namespace zeroplan::executor::sockets
