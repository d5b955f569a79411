#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulation/nccl/nccl.hpp"

// What the emulated NCCL keeps. Everything is guarded by the network's one mutex, with which held the runtime is not called.
namespace zeroplan::emulation {

enum class CallKind : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, message };

// What ranks must have alike.
struct CallText {
  CallKind kind = CallKind::all_reduce;
  std::size_t count = 0;  // of each rank's part, where there are parts
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t reduction = ncclSum;
  int root = 0;  // of a message, its sender
  // From the beginning of the rank's window, of what other ranks reach; -1 elsewhere.
  std::ptrdiff_t send_offset = -1, receive_offset = -1;

  bool operator==(const CallText&) const = default;
};
std::string text_of(const CallText& call);
std::size_t bytes_of(ncclDataType_t type);

// A call of all ranks of a clique, or a message of two. In a graph it runs in rounds: each part once in each.
struct Collective {
  struct Part {
    bool called = false, at_head = false, failed = false;
    std::uint64_t rounds = 0;  // that it has run
    int device = 0;
    const std::byte* send = nullptr;  // as code of the host reaches it
    std::byte* receive = nullptr;
    std::vector<std::byte> result;
  };
  std::string name;
  CallText text;
  std::vector<Part> parts;
  std::uint64_t computed = 0;  // rounds
};

struct Clique {
  explicit Clique(int ranks);

  int size;
  std::string name;
  std::vector<ncclComm*> members;  // by rank; nullptr: has not joined, or has gone
  std::vector<int> devices;        // by rank; -1: has not joined
  int joined = 0;
  std::string broken;  // why its calls never end, unless they are aborted; empty: they do
  std::map<std::size_t, std::shared_ptr<Collective>> calls;  // that not all ranks have made
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Collective>>>
      messages;  // that one side has called

  struct Wish {
    int color = 0, key = 0;
  };
  struct Split {
    std::map<int, Wish> wishes;                      // by rank
    std::map<int, std::shared_ptr<Clique>> cliques;  // by color, once all ranks came
  };
  std::vector<Split> splits;
};

struct Window {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
};

struct Network {
  std::mutex mutex;
  NcclBehaviour behaviour;
  std::vector<std::string> problems;
  int calls_to_failure = 0;  // 0: none fails
  ncclResult_t failure = ncclSuccess;
  int next_id = 0;
  std::uintptr_t next_window = 0;
  std::map<int, std::shared_ptr<Clique>> waiting;  // by id, until all ranks joined
  std::set<ncclComm*> communicators;
  std::map<ncclWindow_t, ncclComm*> windows;
  std::set<void*> blocks;
  std::map<int, std::shared_ptr<Collective>> in_flight;  // by device, where there is room for one

  ncclResult_t problem(ncclResult_t result, const std::string& text);
  void break_clique(Clique& clique, const std::string& why, ncclResult_t error);
};
Network& network();

}  // namespace zeroplan::emulation

struct ncclComm {
  std::shared_ptr<zeroplan::emulation::Clique> clique;
  int rank = 0;
  int device = 0;
  std::size_t calls = 0, splits = 0;
  ncclResult_t error = ncclSuccess;
  bool finalized = false;
  std::shared_ptr<bool> aborted = std::make_shared<bool>(false);
  std::optional<zeroplan::emulation::Window> window;
  // What is in progress: `finish` is called when it was asked for so often and `is_possible`.
  int polls_left = 0;
  std::function<bool()> is_possible;
  std::function<ncclResult_t()> finish;  // with the mutex held
  std::function<ncclResult_t()>
      issue;  // instead, and without it: the runtime asks collectives while it holds its own
};

namespace zeroplan::emulation {

// Makes the call one that is in progress. With the mutex held.
ncclResult_t begin(ncclComm& communicator, std::function<bool()> is_possible,
                   std::function<ncclResult_t()> finish);
// Why the communicator cannot be called now; with the mutex held.
ncclResult_t check_usable(ncclComm_t communicator, const char* call);

}  // namespace zeroplan::emulation
