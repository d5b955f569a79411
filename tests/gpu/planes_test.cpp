#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "emulation/bare_device.hpp"
#include "emulation/plane_checks.hpp"
#include "executor/communicator/devices/shared_card_planes.hpp"
#include "executor/communicator/nccl/nccl_planes.hpp"
#include "executor/communicator/threads/thread_communicator.hpp"

using namespace zeroplan::executor;
using namespace zeroplan::executor::test;
using namespace std::chrono_literals;
using zeroplan::Bytes;
using zeroplan::program::Group;
using zeroplan::program::GroupKind;

namespace {

using Planes = std::vector<std::unique_ptr<DataPlane>>;

void run_threads(std::int64_t ranks, const std::function<void(Communicator&)>& rank_main) {
  run_ranks(ranks, {.timeout = 60s, .delay = {}, .stalled = {}}, rank_main);
}

}  // namespace

TEST_CASE("GPU: virtual ranks on one card compute sums in double precision") {
  for (const std::int64_t ranks : {1, 2, 3, 8}) {
    CAPTURE(ranks);
    run_threads(ranks, [&](Communicator& world) {
      BareDevice device;
      const std::vector<Group> groups{{GroupKind::data_parallel, world.size(), world.rank(), 1}};
      const Planes planes = make_shared_card_planes(world, device, groups);
      check_collectives(device, *planes[0], 1);
      if (ranks > 1) check_messages(device, *planes[0]);
    });
  }
}

TEST_CASE("GPU: one rank over NCCL") {
  run_threads(1, [](Communicator& world) {
    BareDevice device;
    const std::vector<Group> groups{{GroupKind::data_parallel, 1, 0, 1}};
    const Planes planes = make_nccl_planes(world, device, groups, {.timeout = 60s});
    check_collectives(device, *planes[0], 1);
  });
}

TEST_CASE("GPU: one rank over NCCL, in a window and in a graph") {
  run_threads(1, [](Communicator& world) {
    constexpr zeroplan::Elements kNumbers = 4096;
    BareDevice device;
    std::byte* block = device.take_block(nccl_blocks(), Bytes{2} << 20);
    const std::vector<Group> groups{{GroupKind::data_parallel, 1, 0, 1}};
    const Planes planes = make_nccl_planes(world, device, groups, {.timeout = 60s});
    MESSAGE(planes[0]->text());
    if (block == nullptr) MESSAGE("this NCCL has no windows");
    for (const DataType type : {DataType::fp32, DataType::bf16}) {
      DeviceVector vector(device, type, kNumbers, block);
      vector.set(values_of(3, kNumbers));
      for (const TransferKind kind : {TransferKind::all_reduce, TransferKind::reduce_scatter}) {
        planes[0]->enqueue({.kind = kind, .whole = vector.tensor()}, device, Stream::communication, {});
      }
      planes[0]->enqueue({.kind = TransferKind::all_gather, .whole = vector.tensor(), .own = vector.tensor()},
                         device, Stream::communication, {});
      device.synchronize();
      CHECK(vector.get() == values_of(3, kNumbers));
    }
    check_captured(device, *planes[0], block);
    check_captured(device, *planes[0]);
  });
}
