#pragma once

#include <nccl.h>

#include <cstdint>
#include <string>
#include <vector>

// The emulated NCCL: ranks are threads of one process, each with an emulated device of its own, and only communicators that
// do not block; those of other processes never come. A collective runs when it is at the head of every rank's stream. Calls that differ between ranks are named,
// where NVIDIA's would hang; so are communicators that wait for each other, uses of what was destroyed, windows that differ
// between ranks and calls to a communicator that is still in progress.
namespace zeroplan::emulation {

enum class NcclSums : std::uint8_t {
  rank_order,  // in fp32, rounded once
  ring,        // each part begins at another rank; 16-bit types are rounded at each hop
};

struct NcclBehaviour {
  NcclSums sums = NcclSums::rank_order;
  int polls = 2;               // so often is asked in vain whether a call is done
  bool one_in_flight = false;  // a device has room for one collective at a time, as one that is busy may
  int version = NCCL_VERSION_CODE;
};
// To be called while nothing runs. Forgets problems and failures that were not due yet.
void set_nccl_behaviour(const NcclBehaviour& behaviour);

// The n-th collective that is called from now on, from 1, never ends on its rank, whose communicator has the error
// instead.
void fail_nccl_collective(int n, ncclResult_t error);

// What was wrong since set_nccl_behaviour().
std::vector<std::string> nccl_problems();
// Communicators, windows and blocks of memory that were made and not given back.
std::int64_t nccl_objects();

}  // namespace zeroplan::emulation
