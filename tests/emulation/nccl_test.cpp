#include "tests/emulation/nccl/nccl.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "executor/communicator/nccl/nccl_planes.hpp"
#include "executor/communicator/threads/thread_communicator.hpp"
#include "tests/emulation/bare_device.hpp"
#include "tests/emulation/plane_checks.hpp"
#include "tests/emulation/runtime/machine.hpp"

namespace {

using namespace zeroplan::executor;
using namespace zeroplan::executor::test;
using namespace std::chrono_literals;
using zeroplan::Bytes;
using zeroplan::emulation::fail_nccl_collective;
using zeroplan::emulation::Gpu;
using zeroplan::emulation::Machine;
using zeroplan::emulation::nccl_objects;
using zeroplan::emulation::nccl_problems;
using zeroplan::emulation::NcclBehaviour;
using zeroplan::emulation::NcclSums;
using zeroplan::emulation::Policy;
using zeroplan::emulation::Schedule;
using zeroplan::emulation::set_nccl_behaviour;

using Planes = std::vector<std::unique_ptr<DataPlane>>;

struct Bed {
  explicit Bed(std::int64_t count, const NcclBehaviour& behaviour = {}, Schedule schedule = {})
      : ranks(count),
        machine({.gpus = std::vector<Gpu>(static_cast<std::size_t>(count)),
                 .schedule = schedule,
                 .stuck_seconds = 20}) {
    set_nccl_behaviour(behaviour);
  }

  void run(const std::function<std::vector<Group>(const Communicator&)>& groups,
           const std::function<void(BareDevice&, const Planes&)>& rank_main) const {
    run_ranks(ranks, {.timeout = 20s, .delay = {}, .stalled = {}}, [&](Communicator& world) {
      BareDevice device(one_device ? 0 : static_cast<int>(world.rank()));
      if (window_bytes) device.take_block(nccl_blocks(), window_bytes(world.rank()));
      const std::vector<Group> own = groups(world);
      const Planes planes = make_nccl_planes(world, device, own, options);
      rank_main(device, planes);
      world.barrier();  // so that no rank's end is taken for a failure
    });
  }
  // What the run was ended with.
  std::string failure(const std::function<std::vector<Group>(const Communicator&)>& groups,
                      const std::function<void(BareDevice&, const Planes&)>& rank_main) const {
    try {
      run(groups, rank_main);
    } catch (const CommunicationError& error) {
      return error.what();
    } catch (const NotPossible& error) {
      return error.what();
    }
    return "";
  }

  std::int64_t ranks;
  NcclOptions options{.timeout = 10s, .finalize_timeout = 2s};
  bool one_device = false;
  std::function<Bytes(std::int64_t rank)> window_bytes{};  // absent: no window
  Machine machine;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void expect_clean(const Bed& bed) {
  CHECK(bed.machine.problems() == std::vector<std::string>());
  CHECK(nccl_problems() == std::vector<std::string>());
  CHECK(nccl_objects() == 0);
}

}  // namespace

TEST_CASE("collectives and messages over NCCL are sums in double precision, in every order of streams") {
  for (const std::int64_t ranks : {2, 3, 5}) {
    for (const NcclSums sums : {NcclSums::rank_order, NcclSums::ring}) {
      for (const Policy policy : {Policy::in_order, Policy::late, Policy::random}) {
        CAPTURE(ranks);
        const Bed bed(ranks, {.sums = sums}, {policy, 7});
        bed.run(all_of, [&](BareDevice& device, const Planes& planes) {
          check_collectives(device, *planes[0], sums == NcclSums::rank_order ? 1 : static_cast<int>(ranks));
          check_messages(device, *planes[0]);
          check_late_inputs(device, *planes[0]);
        });
        expect_clean(bed);
      }
    }
  }
}

TEST_CASE("groups of different kinds over NCCL are used in one order on two streams") {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const Bed bed(4, {.one_in_flight = true}, {Policy::random, seed});
    bed.run(pairs_and_places,
            [&](BareDevice& device, const Planes& planes) { check_two_streams(device, planes); });
    expect_clean(bed);
  }
}

TEST_CASE("planes over NCCL count calls and bytes as those of threads do") {
  const Bed bed(3);
  bed.run(all_of, [&](BareDevice& device, const Planes& planes) { check_ledger(device, *planes[0]); });
  expect_clean(bed);
}

TEST_CASE("ranks that call different things over NCCL are told what") {
  const Bed bed(2);
  const std::string text = bed.failure(all_of, [](BareDevice& device, const Planes& planes) {
    DeviceVector vector(device, DataType::fp32, 12 + planes[0]->rank());
    Transfer transfer{.kind = TransferKind::all_reduce, .whole = vector.tensor()};
    planes[0]->enqueue(transfer, device, Stream::communication, {});
    device.synchronize();
  });
  CHECK(contains(text, "NCCL: call 0, all_reduce (sum) of 1"));
  REQUIRE(nccl_problems().size() == 1);
  CHECK(contains(nccl_problems()[0], "out of step"));
  CHECK(nccl_objects() == 0);
}

TEST_CASE("a rank that does not come to a collective over NCCL ends the others with a message") {
  Bed bed(3);
  bed.options.timeout = 300ms;
  const std::string text = bed.failure(all_of, [](BareDevice& device, const Planes& planes) {
    DeviceVector vector(device, DataType::fp32, 12);
    Transfer transfer{.kind = TransferKind::all_reduce, .whole = vector.tensor()};
    if (planes[0]->rank() == 1) return std::this_thread::sleep_for(2s);
    planes[0]->enqueue(transfer, device, Stream::communication, {});
    device.synchronize();
  });
  CHECK(
      contains(text, "NCCL: call 0, all_reduce (sum) of 12 fp32: the other ranks did not come within 0.3 s"));
  CHECK(nccl_objects() == 0);
}

TEST_CASE("what was not begun by the device is not late") {
  Bed bed(2);
  bed.options.timeout = 200ms;
  bed.run(all_of, [](BareDevice& device, const Planes& planes) {
    DeviceVector vector(device, DataType::fp32, 12);
    vector.set(std::vector<double>(12, 1.0));
    // The stream first waits for what this rank's other stream does longer than the timeout.
    cudaStream_t compute = device.start(Stream::compute, {});
    cudaLaunchHostFunc(
        compute, [](void*) { std::this_thread::sleep_for(700ms); }, nullptr);
    const Device::Event done = device.make_event();
    device.record(done, Stream::compute);
    device.wait(Stream::communication, done, nullptr);
    Transfer transfer{.kind = TransferKind::all_reduce, .whole = vector.tensor()};
    planes[0]->enqueue(transfer, device, Stream::communication, {});
    device.synchronize();
    require(vector.get() == std::vector<double>(12, 2.0), "the sum is wrong");
  });
  expect_clean(bed);
}

TEST_CASE("a remote error of NCCL comes out of the device") {
  const Bed bed(2);
  fail_nccl_collective(3, ncclRemoteError);
  const std::string text = bed.failure(all_of, [](BareDevice& device, const Planes& planes) {
    DeviceVector vector(device, DataType::fp32, 12);
    Transfer transfer{.kind = TransferKind::all_reduce, .whole = vector.tensor()};
    for (int i = 0; i < 4; ++i) planes[0]->enqueue(transfer, device, Stream::communication, {});
    device.synchronize();
  });
  CHECK(contains(text, "remote process exited or there was a network error"));
  CHECK(nccl_objects() == 0);
}

TEST_CASE("a rank that fails elsewhere ends those that wait for it in NCCL") {
  const Bed bed(3);
  const auto start = std::chrono::steady_clock::now();
  CHECK_THROWS_WITH_AS(bed.run(all_of,
                               [](BareDevice& device, const Planes& planes) {
                                 if (planes[0]->rank() == 2) throw DeviceError("out of memory");
                                 DeviceVector vector(device, DataType::fp32, 12);
                                 Transfer transfer{.kind = TransferKind::all_reduce,
                                                   .whole = vector.tensor()};
                                 planes[0]->enqueue(transfer, device, Stream::communication, {});
                                 device.synchronize();
                               }),
                       doctest::Contains("rank 2: out of memory"), DeviceError);
  CHECK(std::chrono::steady_clock::now() - start < 8s);
  CHECK(nccl_objects() == 0);
}

TEST_CASE("two ranks on one GPU, and an NCCL that is too old, are refused") {
  SUBCASE("one GPU") {
    Bed bed(2);
    bed.one_device = true;
    bed.options.timeout = 300ms;
    CHECK(contains(bed.failure(all_of, [](BareDevice&, const Planes&) {}), "invalid usage: two ranks"));
    CHECK(nccl_objects() == 0);
  }
  SUBCASE("version") {
    const Bed bed(2, {.version = 21703});
    CHECK(contains(bed.failure(all_of, [](BareDevice&, const Planes&) {}),
                   "rank 0 has NCCL 2.17.3: all ranks need the same one, 2.18.0 or newer"));
  }
}

TEST_CASE("a communicator that others use in another order is named") {
  // Two communicators on two streams, without the order that planes keep.
  const Bed bed(2, {.polls = 0, .one_in_flight = true}, {Policy::in_order, 0});
  ncclUniqueId ids[2];
  for (ncclUniqueId& id : ids) REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<std::jthread> ranks;
  ranks.reserve(2);
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      BareDevice device(rank);
      ncclComm_t communicators[2] = {};
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      const auto settled = [](ncclComm_t communicator) {
        ncclResult_t state = ncclInProgress;
        while (state == ncclInProgress) ncclCommGetAsyncError(communicator, &state);
      };
      for (int i = 0; i < 2; ++i) {
        ncclCommInitRankConfig(&communicators[i], 2, ids[i], rank, &config);
        settled(communicators[i]);
      }
      DeviceVector vector(device, DataType::fp32, 12);
      for (int call = 0; call < 2; ++call) {
        const int which = call ^ rank;  // the other rank's order is the other one
        cudaStream_t stream = device.start(which == 0 ? Stream::communication : Stream::tensor, {});
        ncclAllReduce(vector.tensor().data, vector.tensor().data, 12, ncclFloat32, ncclSum,
                      communicators[which], stream);
        settled(communicators[which]);
        cudaStreamQuery(stream);  // lets the device begin it
      }
      while (nccl_problems().empty()) cudaStreamQuery(device.start(Stream::tensor, {}));
      for (ncclComm_t communicator : communicators) ncclCommAbort(communicator);
      device.drain();
    });
  }
  ranks.clear();
  const std::vector<std::string> problems = nccl_problems();
  REQUIRE(!problems.empty());
  CHECK(contains(problems[0], "communicators wait for each other: device"));
}

TEST_CASE(
    "the block of a device is a window of its communicators where all ranks have one of the same size") {
  const auto run = [](Bed& bed, bool is_window) {
    bed.run(all_of, [&](BareDevice& device, const Planes& planes) {
      const bool said = contains(planes[0]->text(), "window");
      require(said == is_window, planes[0]->text());
      require(planes[0]->text().starts_with("NCCL 2."), planes[0]->text());
      std::byte* block = device.source_blocks()[0].data();
      DeviceVector vector(device, DataType::fp32, 12, block + 4096);
      vector.set(std::vector<double>(12, 1.5));
      Transfer transfer{.kind = TransferKind::all_reduce, .whole = vector.tensor()};
      planes[0]->enqueue(transfer, device, Stream::communication, {});
      // Their own parts are at other places on each rank, which only this rank reaches.
      transfer.kind = TransferKind::reduce_scatter;
      planes[0]->enqueue(transfer, device, Stream::communication, {});
      transfer.kind = TransferKind::all_gather;
      transfer.own = vector.part(planes[0]->rank() * 6, 6);
      planes[0]->enqueue(transfer, device, Stream::communication, {});
      device.synchronize();
      require(vector.get() == std::vector<double>(12, 6.0), "the sum is wrong");
    });
    expect_clean(bed);
  };
  Bed bed(2);
  bed.window_bytes = [](std::int64_t) { return Bytes{1} << 20; };
  run(bed, true);
  bed.window_bytes = [](std::int64_t rank) { return Bytes{1 + rank} << 20; };
  run(bed, false);
}

TEST_CASE("memory at different places in the windows is named") {
  Bed bed(2);
  bed.window_bytes = [](std::int64_t) { return Bytes{1} << 20; };
  const std::string text = bed.failure(all_of, [](BareDevice& device, const Planes& planes) {
    std::byte* block = device.source_blocks()[0].data();
    DeviceVector vector(device, DataType::fp32, 12, block + 4096 * planes[0]->rank());
    Transfer transfer{.kind = TransferKind::all_reduce, .whole = vector.tensor()};
    planes[0]->enqueue(transfer, device, Stream::communication, {});
    device.synchronize();
  });
  CHECK(contains(text, "bytes into the window"));
  CHECK(nccl_objects() == 0);
}

TEST_CASE("collectives over NCCL are captured into a graph, and replayed on what is in memory then") {
  for (const std::int64_t ranks : {1, 2, 3}) {
    for (const Policy policy : {Policy::in_order, Policy::late, Policy::random}) {
      CAPTURE(ranks);
      Bed bed(ranks, {}, {policy, 3});
      bed.window_bytes = [](std::int64_t) { return Bytes{1} << 20; };
      bed.run(all_of, [](BareDevice& device, const Planes& planes) {
        check_captured(device, *planes[0]);
        check_captured(device, *planes[0], device.source_blocks()[0].data());
      });
      expect_clean(bed);
    }
  }
}
