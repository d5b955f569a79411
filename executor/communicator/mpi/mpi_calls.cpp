#include "executor/communicator/mpi/mpi_calls.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <thread>

namespace zeroplan::executor::mpi {

namespace {

constexpr MPI_Aint kActivityBytes = 256;

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

void end_all(const std::string& message, int exit_code) {
  fmt::print(stderr, "{}\n", message);
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::terminate();
}

void check(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  MPI_Error_string(result, text.data(), &length);
  text.resize(static_cast<std::size_t>(length));
  end_all(fmt::format("{}: {}", call, text));
}

CommunicatorHandle::CommunicatorHandle(MPI_Comm handle) : handle_(handle) {
  check(MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

CommunicatorHandle::~CommunicatorHandle() { MPI_Comm_free(&handle_); }

ActivityBoard::ActivityBoard() {
  int world_size = 0, host_size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  boards_.assign(static_cast<std::size_t>(world_size), nullptr);

  MPI_Comm host = MPI_COMM_NULL;
  check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host),
        "MPI_Comm_split_type");
  const CommunicatorHandle host_handle(host);
  check(MPI_Win_allocate_shared(kActivityBytes, 1, MPI_INFO_NULL, host, &own_, &window_),
        "MPI_Win_allocate_shared");
  check(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN), "MPI_Win_set_errhandler");
  write("");

  MPI_Comm_size(host, &host_size);
  MPI_Group world_group = MPI_GROUP_NULL, host_group = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &world_group);
  MPI_Comm_group(host, &host_group);
  for (int rank = 0; rank < host_size; ++rank) {
    int world_rank = 0, unit = 0;
    MPI_Aint bytes = 0;
    char* board = nullptr;
    check(MPI_Group_translate_ranks(host_group, 1, &rank, world_group, &world_rank),
          "MPI_Group_translate_ranks");
    // Open MPI 4.1 cannot tell where the others' are while it monitors messages (pml_monitoring_enable).
    if (MPI_Win_shared_query(window_, rank, &bytes, &unit, &board) != MPI_SUCCESS) board = nullptr;
    boards_[static_cast<std::size_t>(world_rank)] = board;
  }
  MPI_Group_free(&host_group);
  MPI_Group_free(&world_group);
}

ActivityBoard::~ActivityBoard() { MPI_Win_free(&window_); }

void ActivityBoard::write(const std::string& activity) {
  const std::size_t length = std::min(activity.size(), static_cast<std::size_t>(kActivityBytes) - 1);
  std::memcpy(own_, activity.data(), length);
  own_[length] = '\0';
}

std::string ActivityBoard::text(int rank) const {
  const char* board = boards_[static_cast<std::size_t>(rank)];
  if (board == nullptr) return fmt::format("what rank {} was at is not known here", rank);
  // Its writer may be writing: the last byte is never written but as an end.
  const std::string activity(board, strnlen(board, static_cast<std::size_t>(kActivityBytes) - 1));
  if (activity.empty()) return fmt::format("rank {} has not said what it does", rank);
  return fmt::format("rank {} was at: {}", rank, activity);
}

Exchange::Exchange(MPI_Comm communicator, const std::vector<int>& members, const ActivityBoard& activities,
                   MpiOptions options)
    : communicator_(communicator), members_(members), activities_(activities), options_(options) {
  MPI_Comm_rank(communicator_, &own_rank_);
}

void Exchange::send(const Call& call, const std::byte* from, Bytes bytes, std::int64_t to) {
  Bytes sent = 0;
  do {
    const Bytes piece = std::min(kMessageBytes, bytes - sent);
    check(MPI_Isend(from + sent, narrow<int>(piece), MPI_BYTE, narrow<int>(to), tag_of(call), communicator_,
                    &requests_.emplace_back()),
          "MPI_Isend");
    messages_.push_back({.rank = to, .bytes = piece, .received = false});
    sent += piece;
  } while (sent < bytes);
}

void Exchange::receive(std::byte* to, Bytes bytes, std::int64_t from) {
  Bytes received = 0;
  do {
    const Bytes piece = std::min(kMessageBytes, bytes - received);
    check(MPI_Irecv(to + received, narrow<int>(piece), MPI_BYTE, narrow<int>(from), MPI_ANY_TAG,
                    communicator_, &requests_.emplace_back()),
          "MPI_Irecv");
    messages_.push_back({.rank = from, .bytes = piece, .received = true});
    received += piece;
  } while (received < bytes);
}

void Exchange::wait(const Call& call) {
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
      check_message(call, messages_[static_cast<std::size_t>(done_[static_cast<std::size_t>(i)])], status);
    }
    open -= static_cast<std::size_t>(done);
    if (open == 0 || done > 0) continue;
    const auto waited = Clock::now() - start;
    if (waited > options_.timeout) end_after_timeout(call);
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

void Exchange::check_message(const Call& call, const Message& message, const MPI_Status& status) const {
  const int error = status.MPI_ERROR;
  int error_class = MPI_SUCCESS;
  if (error != MPI_SUCCESS) MPI_Error_class(error, &error_class);
  if (!message.received) return check(error, "MPI_Isend");
  if (error_class != MPI_ERR_TRUNCATE) check(error, "MPI_Irecv");
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  const bool same_call = status.MPI_TAG == tag_of(call);
  if (same_call && error == MPI_SUCCESS && bytes == message.bytes) return;
  const int own = members_[static_cast<std::size_t>(own_rank_)];
  const int other = members_[static_cast<std::size_t>(message.rank)];
  end_all(fmt::format(
      "ranks are out of step: rank {} is in {}; rank {} is in {} ({}; {})", own, text_of(call), other,
      same_call
          ? fmt::format("the same call with another length: it sent {} bytes, not {}",
                        error_class == MPI_ERR_TRUNCATE ? "more" : fmt::format("{}", bytes), message.bytes)
          : text_of_tag(status.MPI_TAG, call),
      activities_.text(own), activities_.text(other)));
}

void Exchange::end_after_timeout(const Call& call) const {
  std::vector<std::int64_t> missing;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] != MPI_REQUEST_NULL) missing.push_back(messages_[i].rank);
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  std::string ranks = missing.size() == 1 ? "rank" : "ranks";
  std::string activities;
  for (const std::int64_t rank : missing) {
    const int world_rank = members_[static_cast<std::size_t>(rank)];
    ranks += fmt::format("{} {}", rank == missing.front() ? "" : ",", world_rank);
    activities += "; " + activities_.text(world_rank);
  }
  end_all(fmt::format("{} did not come within {} s to {}, where rank {} waited{}", ranks,
                      std::chrono::duration<double>(options_.timeout).count(), text_of(call),
                      members_[static_cast<std::size_t>(own_rank_)], activities));
}

}  // namespace zeroplan::executor::mpi
