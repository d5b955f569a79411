#include "executor/communicator/mpi/mpi_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace zeroplan::executor::mpi {

namespace {

// MPI counts in int. A longer vector is sent in pieces of this size.
constexpr Bytes kMessageBytes = Bytes{1} << 28;

// 15 bits of tag are what every MPI has: 3 of kind, 3 of type, 1 of reduction, 8 of the sequence number.
int tag_of(const Call& call) {
  return static_cast<int>(call.kind) | static_cast<int>(call.type) << 3 |
         static_cast<int>(call.reduction) << 6 | static_cast<int>(call.sequence % 256) << 7;
}

// The call that a tag came from, as far as a tag tells.
std::string text_of_tag(int tag, const Call& mine) {
  Call call{.kind = static_cast<Call::Kind>(tag & 7),
            .reduction = static_cast<Reduction>(tag >> 6 & 1),
            .type = static_cast<program::DataType>(tag >> 3 & 7),
            .elements = -1,
            .root = -1};
  // The nearest sequence number that ends in these 8 bits: ranks cannot be further apart.
  const auto behind = static_cast<std::int8_t>(static_cast<std::uint8_t>(tag >> 7) -
                                               static_cast<std::uint8_t>(mine.sequence));
  call.sequence = mine.sequence + static_cast<std::uint64_t>(std::int64_t{behind});
  return text_of(call);
}

}  // namespace

MpiTransport::MpiTransport(std::shared_ptr<Session> session, MPI_Comm communicator, std::vector<int> members)
    : session_(std::move(session)), communicator_(communicator), members_(std::move(members)) {
  int rank = 0;
  MPI_Comm_rank(communicator, &rank);
  rank_ = rank;
}

void MpiTransport::send(const Call& call, const std::byte* from, Bytes bytes, std::int64_t to) {
  Bytes sent = 0;
  do {
    const Bytes piece = std::min(kMessageBytes, bytes - sent);
    check(MPI_Isend(from + sent, narrow<int>(piece), MPI_BYTE, narrow<int>(to), tag_of(call),
                    communicator_.get(), &requests_.emplace_back()),
          "MPI_Isend");
    messages_.push_back({.rank = to, .bytes = piece, .received = false});
    sent += piece;
  } while (sent < bytes);
}

void MpiTransport::receive(std::byte* to, Bytes bytes, std::int64_t from) {
  Bytes received = 0;
  do {
    const Bytes piece = std::min(kMessageBytes, bytes - received);
    check(MPI_Irecv(to + received, narrow<int>(piece), MPI_BYTE, narrow<int>(from), MPI_ANY_TAG,
                    communicator_.get(), &requests_.emplace_back()),
          "MPI_Irecv");
    messages_.push_back({.rank = from, .bytes = piece, .received = true});
    received += piece;
  } while (received < bytes);
}

void MpiTransport::wait(const Call& call) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  done_.resize(requests_.size());
  statuses_.resize(requests_.size());
  for (std::size_t open = requests_.size(); open > 0;) {
    int done = 0;
    const int result =
        MPI_Testsome(narrow<int>(requests_.size()), requests_.data(), &done, done_.data(), statuses_.data());
    if (result != MPI_ERR_IN_STATUS) check(result, "MPI_Testsome");
    for (int i = 0; i < done; ++i) {
      MPI_Status& status = statuses_[static_cast<std::size_t>(i)];
      if (result == MPI_SUCCESS)
        status.MPI_ERROR = MPI_SUCCESS;  // set by MPI only where one of them is an error
      const Message& message = messages_[static_cast<std::size_t>(done_[static_cast<std::size_t>(i)])];
      check_message(call, message, status);
      if (!message.received) sent_bytes_ += message.bytes;
    }
    open -= static_cast<std::size_t>(done);
    if (open == 0 || done > 0) continue;
    const auto waited = Clock::now() - start;
    if (waited > session_->options.timeout) end_after_timeout(call);
    // Ranks in step are back in a moment; for a late one its core is worth more than our polling.
    if (waited < std::chrono::milliseconds(5)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  requests_.clear();
  messages_.clear();
}

std::unique_ptr<exchange::Transport> MpiTransport::split(const Call&,
                                                         const std::vector<std::int64_t>& ranks) {
  std::vector<int> members;
  members.reserve(ranks.size());
  for (const std::int64_t r : ranks) members.push_back(member(r));
  // MPI wants small colors and keys; everyone is here, so this does not wait for a rank that is lost.
  const auto place = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
  const std::int64_t smallest = *std::min_element(ranks.begin(), ranks.end());
  MPI_Comm child = MPI_COMM_NULL;
  check(MPI_Comm_split(communicator_.get(), narrow<int>(smallest), narrow<int>(place), &child),
        "MPI_Comm_split");
  return std::make_unique<MpiTransport>(session_, child, std::move(members));
}

void MpiTransport::abort(const std::string& reason) {
  end_all(fmt::format("rank {}: {}", member(rank_), reason));
}

void MpiTransport::check_message(const Call& call, const Message& message, const MPI_Status& status) const {
  const int error = status.MPI_ERROR;
  int error_class = MPI_SUCCESS;
  if (error != MPI_SUCCESS) MPI_Error_class(error, &error_class);
  if (!message.received) return check(error, "MPI_Isend");
  if (error_class != MPI_ERR_TRUNCATE) check(error, "MPI_Irecv");
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  const bool same_call = status.MPI_TAG == tag_of(call);
  if (same_call && error == MPI_SUCCESS && bytes == message.bytes) return;
  const int own = member(rank_);
  const int other = member(message.rank);
  const std::string theirs =
      same_call
          ? fmt::format("the same call with another length: it sent {} bytes, not {}",
                        error_class == MPI_ERR_TRUNCATE ? "more" : fmt::format("{}", bytes), message.bytes)
          : text_of_tag(status.MPI_TAG, call);
  end_all(fmt::format("{} ({}; {})", exchange::out_of_step_text(own, call, other, theirs),
                      session_->activities.text(own), session_->activities.text(other)));
}

void MpiTransport::end_after_timeout(const Call& call) const {
  std::vector<std::int64_t> missing;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] != MPI_REQUEST_NULL) missing.push_back(member(messages_[i].rank));
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  std::string message = exchange::missing_text(missing, session_->options.timeout, call, member(rank_));
  for (const std::int64_t rank : missing) message += "; " + session_->activities.text(narrow<int>(rank));
  end_all(message);
}

}  // namespace zeroplan::executor::mpi
