#include "executor/communicator/mpi/mpi_calls.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>

#include "executor/communicator/exchange/transport.hpp"
#include "planner/units.hpp"

namespace zeroplan::executor::mpi {

namespace {

constexpr MPI_Aint kActivityBytes = 256;

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
  writer_ = std::jthread([this] { rewrite(); });

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

ActivityBoard::~ActivityBoard() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  writer_.join();
  MPI_Win_free(&window_);
}

void ActivityBoard::set(Activity activity) {
  const std::lock_guard lock(mutex_);
  activity_ = std::move(activity);
  if (activity_) write(activity_());
}

void ActivityBoard::rewrite() {
  constexpr std::chrono::milliseconds kPause{100};
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kPause, [this] { return ended_; })) {
    if (activity_) write(activity_());
  }
}

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
  return exchange::activity_text(rank, activity);
}

}  // namespace zeroplan::executor::mpi
