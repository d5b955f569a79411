#include "executor/communicator/sockets/control.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <utility>

#include "executor/communicator/exchange/transport.hpp"
#include "executor/error.hpp"

namespace zeroplan::executor::sockets {

namespace {

using namespace std::chrono_literals;

constexpr auto kBeat = 50ms;             // changed activities
constexpr int kBeatsPerSignOfLife = 4;   // unchanged ones
constexpr auto kSettle = 3 * kBeat;      // for the activities that a verdict names to come in
constexpr auto kPatienceWithRank0 = 2s;  // for its verdict
constexpr auto kLinger = 2s;             // of rank 0, for all to hear the verdict
constexpr std::chrono::milliseconds kLongestStall = 5s;

FailureReport loss_of(std::int64_t rank, const std::string& how) {
  return report_of(Failure::Kind::communication, fmt::format("rank {} {}", rank, how), {rank});
}

}  // namespace

FailureReport report_of(Failure::Kind kind, std::string text, std::vector<std::int64_t> about) {
  FailureReport report;
  report.failure.kind = kind;
  report.failure.text = std::move(text);
  report.about = std::move(about);
  return report;
}

Event::Event() : socket_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!socket_) throw CommunicationError("eventfd: " + system_text(errno));
}
void Event::set() const { (void)::eventfd_write(socket_.get(), 1); }
void Event::clear() const {
  eventfd_t ignored = 0;
  (void)::eventfd_read(socket_.get(), &ignored);
}

Control::Control(const SocketOptions& options, std::vector<FrameStream> streams) : options_(options) {
  peers_.reserve(streams.size());
  for (FrameStream& stream : streams) peers_.push_back({.stream = std::move(stream), .heard = Clock::now()});
  // Said before anything else, so that a peer that ends at once is not one that has said nothing.
  sent_activity_ = activity_();
  send_to_all(Frame(FrameKind::activity).put(sent_activity_));
  thread_ = std::jthread([this] { run(); });
}

Control::~Control() {
  {
    const std::lock_guard lock(mutex_);
    told_ = leaving_ = true;
  }
  requested_.set();
}

void Control::set_activity(Activity activity) {
  const std::lock_guard lock(mutex_);
  activity_ = std::move(activity);
}

std::string Control::activity() const {
  const std::lock_guard lock(mutex_);
  return activity_();
}

bool Control::stopped() const {
  const std::lock_guard lock(mutex_);
  return verdict_.has_value() || report_.has_value();
}

void Control::report(FailureReport report) {
  {
    const std::lock_guard lock(mutex_);
    if (!report_) report_ = std::move(report);
  }
  requested_.set();
}

Failure Control::stop(FailureReport report) {
  this->report(std::move(report));
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return verdict_.has_value(); });
  told_ = true;
  return *verdict_;
}

std::optional<Failure> Control::finish() {
  std::unique_lock lock(mutex_);
  returned_ = true;
  activity_ = [] { return std::string("the end of its work"); };
  requested_.set();
  changed_.wait(lock, [&] { return verdict_ || all_returned_; });
  told_ = true;
  return verdict_;
}

void Control::run() {
  auto next_beat = Clock::now();
  while (true) {
    exchange_frames(pending_ ? std::min(next_beat, pending_->decide) : next_beat);
    take_requests();
    if (Clock::now() >= next_beat) {
      beat();
      require_signs_of_life();
      require_own_end();
      next_beat = Clock::now() + kBeat;
    }
    if (pending_ && !over_since_ && Clock::now() >= pending_->decide) {
      publish({.kind = pending_->report.failure.kind, .text = text_about(pending_->report)});
    }
    if (may_leave()) return;
  }
}

void Control::exchange_frames(Clock::time_point deadline) {
  std::vector<pollfd> descriptors{ready_when(requested_.descriptor(), true, false)};
  std::vector<Peer*> open;
  for (Peer& peer : peers_) {
    if (!peer.stream.open()) continue;
    descriptors.push_back(ready_when(peer.stream.socket().get(), true, peer.stream.has_to_write()));
    open.push_back(&peer);
  }
  if (!poll_until(descriptors, deadline)) return;
  if (descriptors[0].revents != 0) requested_.clear();
  for (std::size_t i = 0; i < open.size(); ++i) {
    if (descriptors[i + 1].revents == 0) continue;
    open[i]->stream.flush();
    receive_from(*open[i]);
  }
}

void Control::receive_from(Peer& peer) {
  std::string how = "ended without a word";
  try {
    while (auto frame = peer.stream.receive()) {
      peer.heard = Clock::now();
      handle(peer, std::move(*frame));
    }
    if (peer.stream.open()) return;
  } catch (const CommunicationError& error) {
    how = error.what();
  }
  if (over_since_) return;
  FailureReport lost = loss_of(rank_of(peer), how);
  if (is_hub()) return decide_after(std::move(lost), 0ms);
  publish({.kind = lost.failure.kind, .text = text_about(lost)});
}

void Control::handle(Peer& peer, Frame frame) {
  switch (frame.kind()) {
    case FrameKind::activity:
      peer.activity = frame.text();
      return;
    case FrameKind::failure: {
      FailureReport report;
      report.failure.kind = static_cast<Failure::Kind>(frame.number());
      report.failure.text = frame.text();
      for (std::int64_t left = frame.number(); left > 0; --left) report.about.push_back(frame.number());
      const auto settle = report.about.empty() ? 0ms : kSettle;
      return decide_after(std::move(report), settle);
    }
    case FrameKind::returned:
      peer.returned = true;
      return;
    case FrameKind::verdict: {
      Failure verdict;
      verdict.kind = static_cast<Failure::Kind>(frame.number());
      verdict.text = frame.text();
      return publish(std::move(verdict));
    }
    case FrameKind::all_returned:
      return publish_all_returned();
    case FrameKind::alive:
      return;
    case FrameKind::greeting:
    case FrameKind::hello:
    case FrameKind::refused:
    case FrameKind::table:
    case FrameKind::peer:
      break;
  }
  throw CommunicationError("sent something that belongs to the start of a run");
}

void Control::take_requests() {
  std::optional<FailureReport> report;
  bool returned = false;
  {
    const std::lock_guard lock(mutex_);
    if (!pending_) report = report_;
    returned = returned_;
  }
  if (over_since_) return;
  if (report && is_hub()) {
    const auto settle = report->about.empty() ? 0ms : kSettle;
    return decide_after(std::move(*report), settle);
  }
  if (report) {
    send_failure(*report);
    return decide_after(std::move(*report), kPatienceWithRank0);
  }
  if (!returned) return;
  const auto done = [&](const Peer& peer) { return peer.returned || &peer == peers_.data(); };
  if (!is_hub()) {
    if (!std::exchange(peers_[0].returned, true)) peers_[0].stream.send(Frame(FrameKind::returned));
  } else if (std::all_of(peers_.begin(), peers_.end(), done)) {
    send_to_all(Frame(FrameKind::all_returned));
    publish_all_returned();
  }
}

void Control::send_failure(const FailureReport& report) {
  Frame frame(FrameKind::failure);
  frame.put(static_cast<std::int64_t>(report.failure.kind))
      .put(report.failure.text)
      .put(static_cast<std::int64_t>(report.about.size()));
  for (const std::int64_t rank : report.about) frame.put(rank);
  send_to_all(frame);
}

void Control::decide_after(FailureReport report, std::chrono::milliseconds time) {
  if (pending_ || over_since_) return;
  pending_ = Pending{.report = std::move(report), .decide = Clock::now() + time};
}

std::string Control::text_about(const FailureReport& report) const {
  std::string text = report.failure.text;
  for (const std::int64_t rank : report.about) {
    const auto r = static_cast<std::size_t>(rank);
    if (rank == options_.rank) {
      text += "; " + exchange::activity_text(rank, activity());
    } else if (r < peers_.size()) {
      text += "; " + exchange::activity_text(rank, peers_[r].activity);
    } else {
      text += fmt::format("; what rank {} was at is not known here", rank);
    }
  }
  return text;
}

void Control::send_to_all(const Frame& frame) {
  for (Peer& peer : peers_) peer.stream.send(frame);
}

void Control::beat() {
  if (over_since_) return;
  std::string now_at = activity();
  ++beats_;
  if (now_at != sent_activity_) {
    send_to_all(Frame(FrameKind::activity).put(now_at));
    sent_activity_ = std::move(now_at);
  } else if (beats_ % kBeatsPerSignOfLife == 0) {
    send_to_all(Frame(FrameKind::alive));
  }
}

void Control::require_signs_of_life() {
  if (over_since_) return;
  for (const Peer& peer : peers_) {
    if (!peer.stream.open() || Clock::now() - peer.heard <= options_.timeout) continue;
    const double seconds = std::chrono::duration<double>(options_.timeout).count();
    FailureReport lost = loss_of(rank_of(peer), fmt::format("gave no sign of life for {} s", seconds));
    if (is_hub()) return decide_after(std::move(lost), 0ms);
    return publish({.kind = lost.failure.kind, .text = text_about(lost)});
  }
}

void Control::publish(Failure verdict) {
  if (over_since_) return;
  over_since_ = Clock::now();
  if (is_hub()) {
    send_to_all(Frame(FrameKind::verdict).put(static_cast<std::int64_t>(verdict.kind)).put(verdict.text));
  } else {
    peers_[0].stream.end_sending();
  }
  {
    const std::lock_guard lock(mutex_);
    verdict_ = std::move(verdict);
  }
  changed_.notify_all();
  stopped_.set();
}

void Control::publish_all_returned() {
  if (over_since_) return;
  over_since_ = Clock::now();
  if (!is_hub()) peers_[0].stream.end_sending();
  {
    const std::lock_guard lock(mutex_);
    all_returned_ = true;
  }
  changed_.notify_all();
}

void Control::require_own_end() {
  if (!over_since_ || Clock::now() - *over_since_ < std::min(options_.timeout, kLongestStall)) return;
  std::string report;
  {
    const std::lock_guard lock(mutex_);
    if (told_) return;
    told_ = true;
    report = fmt::format("{}; rank {} does not end: {}", verdict_->text, options_.rank,
                         exchange::activity_text(options_.rank, activity_()));
  }
  if (options_.stalled) return options_.stalled(report);
  fmt::print(stderr, "{}\n", report);
  std::terminate();
}

bool Control::may_leave() const {
  {
    const std::lock_guard lock(mutex_);
    if (!leaving_) return false;
  }
  // Rank 0 goes last: what it has sent must not be lost with its connections.
  if (!over_since_ || !is_hub() || Clock::now() - *over_since_ > kLinger) return true;
  return std::none_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.stream.open(); });
}

}  // namespace zeroplan::executor::sockets
