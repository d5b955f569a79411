#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "executor/communicator/devices/shared_card_planes.hpp"
#include "executor/communicator/threads/thread_communicator.hpp"
#include "tests/emulation/bare_device.hpp"
#include "tests/emulation/plane_checks.hpp"
#include "tests/emulation/runtime/machine.hpp"

namespace {

using namespace zeroplan::executor;
using namespace zeroplan::executor::test;
using namespace std::chrono_literals;
using zeroplan::emulation::Gpu;
using zeroplan::emulation::Machine;
using zeroplan::emulation::Policy;
using zeroplan::emulation::Schedule;

using Planes = std::vector<std::unique_ptr<DataPlane>>;

struct Bed {
  explicit Bed(std::int64_t count, Schedule schedule = {})
      : ranks(count), machine({.gpus = std::vector<Gpu>(2), .schedule = schedule, .stuck_seconds = 20}) {}

  void run(const std::function<std::vector<Group>(const Communicator&)>& groups,
           const std::function<void(BareDevice&, const Planes&)>& rank_main) const {
    run_ranks(ranks, {.timeout = timeout, .delay = {}, .stalled = {}}, [&](Communicator& world) {
      BareDevice device(apart ? static_cast<int>(world.rank()) : 0);
      const Planes planes = make_shared_card_planes(world, device, groups(world));
      rank_main(device, planes);
    });
  }

  std::int64_t ranks;
  std::chrono::milliseconds timeout = 20s;
  bool apart = false;
  Machine machine;
};

void expect_clean(const Bed& bed) { CHECK(bed.machine.problems() == std::vector<std::string>()); }

}  // namespace

TEST_CASE("virtual ranks on one GPU compute sums in double precision, in every order of streams") {
  for (const std::int64_t ranks : {1, 2, 3, 8}) {
    for (const Schedule schedule : {Schedule{Policy::in_order, 0}, Schedule{Policy::late, 0},
                                    Schedule{Policy::priority, 11}, Schedule{Policy::random, 5}}) {
      CAPTURE(ranks);
      const Bed bed(ranks, schedule);
      bed.run(all_of, [&](BareDevice& device, const Planes& planes) {
        check_collectives(device, *planes[0], 1);
        if (ranks > 1) check_messages(device, *planes[0]);
      });
      expect_clean(bed);
    }
  }
}

TEST_CASE("groups of virtual ranks are used on two streams") {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const Bed bed(4, {Policy::random, seed});
    bed.run(pairs_and_places,
            [&](BareDevice& device, const Planes& planes) { check_two_streams(device, planes); });
    expect_clean(bed);
  }
}

TEST_CASE("sums of virtual ranks are in the order of ranks and rounded once, on every rank") {
  // In bf16 256 + 1 is 256, and 1 + 1 + 254 is 256; in fp32 2^24 + 1 is 2^24.
  const Bed bed(4);
  bed.run(all_of, [](BareDevice& device, const Planes& planes) {
    const auto own = static_cast<std::size_t>(planes[0]->rank());
    const auto sum_of = [&](DataType type, const std::vector<double>& numbers) {
      DeviceVector vector(device, type, 1);
      vector.set({numbers[own]});
      planes[0]->enqueue({.kind = TransferKind::all_reduce, .whole = vector.tensor()}, device,
                         Stream::communication, {});
      device.synchronize();
      return vector.get()[0];
    };
    require(sum_of(DataType::bf16, {256, 1, 1, 0}) == 258, "16-bit sums are rounded on the way");
    require(sum_of(DataType::fp32, {16777216, 1, 1, -16777216}) == 0, "fp32 sums are in another order");
    require(sum_of(DataType::fp32, {1, 1, 16777216, -16777216}) == 2, "fp32 sums are in another order");
  });
  expect_clean(bed);
}

TEST_CASE("a maximum of virtual ranks with a number that is none is none") {
  const Bed bed(3);
  bed.run(all_of, [](BareDevice& device, const Planes& planes) {
    for (std::int64_t none = 0; none < 3; ++none) {
      DeviceVector vector(device, DataType::fp32, 1);
      vector.set({planes[0]->rank() == none ? NAN : 3.0});
      planes[0]->enqueue(
          {.kind = TransferKind::all_reduce, .reduction = Reduction::maximum, .whole = vector.tensor()},
          device, Stream::communication, {});
      device.synchronize();
      require(std::isnan(vector.get()[0]), "a maximum passed a NaN over");
    }
  });
}

TEST_CASE("planes of virtual ranks count calls and bytes as those of threads do") {
  const Bed bed(3);
  bed.run(all_of, [&](BareDevice& device, const Planes& planes) { check_ledger(device, *planes[0]); });
  expect_clean(bed);
}

TEST_CASE("virtual ranks that are out of step, missing or on different GPUs end with a message") {
  Bed bed(2);
  bed.timeout = 500ms;
  const auto reduce = [](BareDevice& device, const Planes& planes, TransferKind kind, std::int64_t elements) {
    DeviceVector vector(device, DataType::fp32, elements);
    planes[0]->enqueue({.kind = kind, .whole = vector.tensor(), .other = 1 - planes[0]->rank()}, device,
                       Stream::communication, {});
    device.synchronize();
  };
  CHECK_THROWS_WITH_AS(
      bed.run(all_of,
              [&](BareDevice& device, const Planes& planes) {
                reduce(device, planes, TransferKind::all_reduce, 12 + planes[0]->rank());
              }),
      doctest::Contains("rank 0 of a group is in call 0, all_reduce (sum) of 12 fp32; rank 1 is in "
                        "call 0, all_reduce (sum) of 13 fp32"),
      CommunicationError);
  CHECK_THROWS_WITH_AS(bed.run(all_of,
                               [&](BareDevice& device, const Planes& planes) {
                                 const bool sends = planes[0]->rank() == 0;
                                 reduce(device, planes, sends ? TransferKind::send : TransferKind::receive,
                                        sends ? 12 : 13);
                               }),
                       doctest::Contains("message 0 from rank 0 of 12 fp32"), CommunicationError);
  CHECK_THROWS_WITH_AS(bed.run(all_of,
                               [&](BareDevice& device, const Planes& planes) {
                                 if (planes[0]->rank() == 0) return;
                                 reduce(device, planes, TransferKind::all_reduce, 12);
                               }),
                       doctest::Contains("rank 0 did not come within 0.5 s"), CommunicationError);
  bed.apart = true;
  CHECK_THROWS_WITH_AS(
      bed.run(all_of, [](BareDevice&, const Planes&) {}),
      doctest::Contains("rank 0 of a group is on GPU 0 and rank 1 on GPU 1: start a process"), NotPossible);
}
