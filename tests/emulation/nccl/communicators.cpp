#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "tests/emulation/nccl/clique.hpp"

namespace zeroplan::emulation {

namespace {

struct Id {
  int process = 0, number = 0;
};

constexpr unsigned kMagic = 0xcafebeef;  // of NCCL_CONFIG_INITIALIZER

ncclComm* make_member(std::shared_ptr<Clique> clique, int rank, int device) {
  auto* communicator = new ncclComm;
  communicator->clique = std::move(clique);
  communicator->rank = rank;
  communicator->device = device;
  Clique& of = *communicator->clique;
  of.members[static_cast<std::size_t>(rank)] = communicator;
  of.devices[static_cast<std::size_t>(rank)] = device;
  ++of.joined;
  network().communicators.insert(communicator);
  return communicator;
}

// Ranks that asked for the same color, in the order of their keys.
void make_cliques(const Clique& parent, Clique::Split& split) {
  std::map<int, std::vector<std::pair<int, int>>> members;  // key and rank, by color
  for (const auto& [rank, wish] : split.wishes) {
    if (wish.color != NCCL_SPLIT_NOCOLOR) members[wish.color].emplace_back(wish.key, rank);
  }
  for (const auto& [color, ranks] : members) {
    auto clique = std::make_shared<Clique>(static_cast<int>(ranks.size()));
    clique->name = fmt::format("{}.{}:{}", parent.name, parent.splits.size() - 1, color);
    split.cliques[color] = std::move(clique);
  }
}

int rank_in(const Clique::Split& split, int rank) {
  const Clique::Wish& own = split.wishes.at(rank);
  int before = 0;
  for (const auto& [other, wish] : split.wishes) {
    if (wish.color == own.color && std::tie(wish.key, other) < std::tie(own.key, rank)) ++before;
  }
  return before;
}

void leave(ncclComm* communicator) {
  Network& net = network();
  communicator->clique->members[static_cast<std::size_t>(communicator->rank)] = nullptr;
  net.communicators.erase(communicator);
  const auto left =
      std::erase_if(net.windows, [&](const auto& window) { return window.second == communicator; });
  if (left > 0) net.problem(ncclInvalidUsage, "a communicator is destroyed while it has a window");
  delete communicator;
}

ncclResult_t check_config(const ncclConfig_t* config) {
  if (config == nullptr || config->magic != kMagic || config->size < offsetof(ncclConfig_t, commName)) {
    return network().problem(ncclInvalidArgument, "a configuration that was not initialised");
  }
  if (config->blocking != 0) {
    return network().problem(ncclInvalidUsage, "communicators that block are not emulated");
  }
  return ncclSuccess;
}

}  // namespace

Network& network() {
  static Network the;
  return the;
}

Clique::Clique(int ranks)
    : size(ranks), members(static_cast<std::size_t>(ranks)), devices(static_cast<std::size_t>(ranks), -1) {}

ncclResult_t Network::problem(ncclResult_t result, const std::string& text) {
  problems.push_back(text);
  return result;
}

void Network::break_clique(Clique& clique, const std::string& why, ncclResult_t error) {
  if (clique.broken.empty()) clique.broken = why;
  for (ncclComm* member : clique.members) {
    if (member != nullptr && member->error == ncclSuccess) member->error = error;
  }
}

ncclResult_t begin(ncclComm& communicator, std::function<bool()> is_possible,
                   std::function<ncclResult_t()> finish) {
  communicator.polls_left = network().behaviour.polls;
  communicator.is_possible = std::move(is_possible);
  communicator.finish = std::move(finish);
  return ncclInProgress;
}

ncclResult_t check_usable(ncclComm_t communicator, const char* call) {
  Network& net = network();
  if (!net.communicators.contains(communicator)) {
    return net.problem(ncclInvalidArgument, fmt::format("{} of a communicator that is not there", call));
  }
  if (communicator->finish || communicator->issue) {
    return net.problem(ncclInvalidUsage, fmt::format("{} of a communicator that is still in progress", call));
  }
  if (communicator->finalized) {
    return net.problem(ncclInvalidUsage, fmt::format("{} of a communicator that was finalized", call));
  }
  return communicator->error;
}

void set_nccl_behaviour(const NcclBehaviour& behaviour) {
  Network& net = network();
  const std::lock_guard lock(net.mutex);
  net.behaviour = behaviour;
  net.problems.clear();
  net.calls_to_failure = 0;
  net.in_flight.clear();
}

void fail_nccl_collective(int n, ncclResult_t error) {
  Network& net = network();
  const std::lock_guard lock(net.mutex);
  net.calls_to_failure = n;
  net.failure = error;
}

std::vector<std::string> nccl_problems() {
  const std::lock_guard lock(network().mutex);
  return network().problems;
}

std::int64_t nccl_objects() {
  Network& net = network();
  const std::lock_guard lock(net.mutex);
  return static_cast<std::int64_t>(net.communicators.size() + net.windows.size() + net.blocks.size());
}

}  // namespace zeroplan::emulation

using namespace zeroplan::emulation;  // NOLINT(google-build-using-namespace): what follows is its C interface

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  const std::lock_guard lock(network().mutex);
  *version = network().behaviour.version;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
  Network& net = network();
  const std::lock_guard lock(net.mutex);
  const Id id{getpid(), ++net.next_id};
  *uniqueId = {};
  std::memcpy(uniqueId->internal, &id, sizeof id);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
  }
  return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t) {
  thread_local std::string last;
  const std::lock_guard lock(network().mutex);
  last = network().problems.empty() ? "" : network().problems.back();
  return last.c_str();
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t* config) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return ncclUnhandledCudaError;
  Network& net = network();
  const std::lock_guard lock(net.mutex);
  if (const ncclResult_t wrong = check_config(config); wrong != ncclSuccess) return wrong;
  Id made;
  std::memcpy(&made, commId.internal, sizeof made);
  const bool here = made.process == getpid();
  if (here && (made.number < 1 || made.number > net.next_id))
    return net.problem(ncclInvalidArgument, "an id that was not made");
  // Ranks of another process never come, as if that had died.
  const int id = here ? made.number : -made.process;
  std::shared_ptr<Clique>& clique = net.waiting[id];
  if (!clique) {
    clique = std::make_shared<Clique>(nranks);
    clique->name = fmt::format("communicator {}", id);
  }
  if (nranks != clique->size || rank < 0 || rank >= nranks ||
      clique->devices[static_cast<std::size_t>(rank)] >= 0) {
    return net.problem(ncclInvalidArgument,
                       fmt::format("rank {} of {} in {} of {}", rank, nranks, clique->name, clique->size));
  }
  if (std::find(clique->devices.begin(), clique->devices.end(), device) != clique->devices.end()) {
    return net.problem(ncclInvalidUsage,
                       fmt::format("two ranks of {} are on device {}", clique->name, device));
  }
  const std::shared_ptr<Clique> own = clique;
  *comm = make_member(own, rank, device);
  if (own->joined == own->size) net.waiting.erase(id);
  return begin(
      **comm, [own] { return own->joined == own->size; }, [] { return ncclSuccess; });
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config) {
  Network& net = network();
  const std::lock_guard lock(net.mutex);
  if (const ncclResult_t wrong = check_usable(comm, "ncclCommSplit"); wrong != ncclSuccess) return wrong;
  if (const ncclResult_t wrong = check_config(config); wrong != ncclSuccess) return wrong;
  *newcomm = nullptr;
  const std::shared_ptr<Clique> parent = comm->clique;
  const std::size_t number = comm->splits++;
  if (parent->splits.size() <= number) parent->splits.resize(number + 1);
  Clique::Split& own = parent->splits[number];
  own.wishes[comm->rank] = {color, key};
  if (own.wishes.size() == static_cast<std::size_t>(parent->size)) make_cliques(*parent, own);
  return begin(
      *comm,
      [parent, number] {
        return parent->splits[number].wishes.size() == static_cast<std::size_t>(parent->size);
      },
      [comm, parent, number, newcomm] {
        const Clique::Split& split = parent->splits[number];
        const int wanted = split.wishes.at(comm->rank).color;
        if (wanted == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
        const std::shared_ptr<Clique> clique = split.cliques.at(wanted);
        *newcomm = make_member(clique, rank_in(split, comm->rank), comm->device);
        begin(
            **newcomm, [clique] { return clique->joined == clique->size; }, [] { return ncclSuccess; });
        return ncclSuccess;
      });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::lock_guard lock(network().mutex);
  if (const ncclResult_t wrong = check_usable(comm, "ncclCommFinalize"); wrong != ncclSuccess) return wrong;
  return begin(
      *comm, [] { return true; },
      [comm] {
        comm->finalized = true;
        return ncclSuccess;
      });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  Network& net = network();
  const std::lock_guard lock(net.mutex);
  if (!net.communicators.contains(comm) || !comm->finalized) {
    return net.problem(ncclInvalidArgument, "ncclCommDestroy of a communicator that was not finalized");
  }
  leave(comm);
  return ncclSuccess;
}

// The others learn of it as of a process that ended.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  Network& net = network();
  const std::lock_guard lock(net.mutex);
  if (!net.communicators.contains(comm)) {
    return net.problem(ncclInvalidArgument, "ncclCommAbort of a communicator that is not there");
  }
  *comm->aborted = true;
  comm->window.reset();
  std::erase_if(net.windows, [&](const auto& window) { return window.second == comm; });
  for (ncclComm* other : comm->clique->members) {
    if (other != nullptr && other != comm && other->error == ncclSuccess) other->error = ncclRemoteError;
  }
  leave(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  Network& net = network();
  std::unique_lock lock(net.mutex);
  if (!net.communicators.contains(comm)) {
    return net.problem(ncclInvalidArgument, "ncclCommGetAsyncError of a communicator that is not there");
  }
  *asyncError = comm->error;
  if (comm->error != ncclSuccess || (!comm->finish && !comm->issue)) return ncclSuccess;
  *asyncError = ncclInProgress;
  if (comm->finish && !comm->is_possible()) return ncclSuccess;
  if (comm->polls_left-- > 0) return ncclSuccess;
  if (const auto issue = std::exchange(comm->issue, nullptr)) {
    lock.unlock();
    *asyncError = issue();
  } else {
    *asyncError = std::exchange(comm->finish, nullptr)();
  }
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** ptr, size_t size) {
  if (cudaMalloc(ptr, size) != cudaSuccess) return ncclUnhandledCudaError;
  const std::lock_guard lock(network().mutex);
  network().blocks.insert(*ptr);
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void* ptr) {
  {
    Network& net = network();
    const std::lock_guard lock(net.mutex);
    if (net.blocks.erase(ptr) == 0)
      return net.problem(ncclInvalidArgument, "ncclMemFree of what ncclMemAlloc did not give");
  }
  return cudaFree(ptr) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                                    int winFlags) {
  Network& net = network();
  const std::lock_guard lock(net.mutex);
  if (const ncclResult_t wrong = check_usable(comm, "ncclCommWindowRegister"); wrong != ncclSuccess)
    return wrong;
  if (winFlags != NCCL_WIN_COLL_SYMMETRIC || comm->window) {
    return net.problem(ncclInvalidUsage, "one symmetric window of a communicator is emulated");
  }
  if (reinterpret_cast<std::uintptr_t>(buff) % NCCL_WIN_REQUIRED_ALIGNMENT != 0 ||
      !net.blocks.contains(buff)) {
    return net.problem(ncclInvalidArgument, "a window that is no block of ncclMemAlloc");
  }
  comm->window = Window{static_cast<std::byte*>(buff), size};
  const std::shared_ptr<Clique> clique = comm->clique;
  return begin(
      *comm,
      [clique] {
        return std::all_of(clique->members.begin(), clique->members.end(),
                           [](const ncclComm* member) { return member != nullptr && member->window; });
      },
      [comm, clique, win] {
        const bool alike =
            std::all_of(clique->members.begin(), clique->members.end(), [&](const ncclComm* member) {
              return member == nullptr || !member->window || member->window->bytes == comm->window->bytes;
            });
        if (!alike) {
          return network().problem(ncclInvalidArgument,
                                   fmt::format("windows of {} have other sizes", clique->name));
        }
        // NOLINTNEXTLINE(performance-no-int-to-ptr): a handle is a number that nobody follows
        *win = reinterpret_cast<ncclWindow_t>(++network().next_window);
        network().windows.emplace(*win, comm);
        return ncclSuccess;
      });
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  Network& net = network();
  const std::lock_guard lock(net.mutex);
  const auto found = net.windows.find(win);
  if (found == net.windows.end() || found->second != comm) {
    return net.problem(ncclInvalidArgument, "ncclCommWindowDeregister of what is no window");
  }
  net.windows.erase(found);
  comm->window.reset();
  return ncclSuccess;
}

}  // extern "C"
