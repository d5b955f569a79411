#include "tests/executor/rank_scenarios.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "executor/communicator/exchange/exchange_communicator.hpp"
#include "executor/communicator/threads/thread_communicator.hpp"
#include "planner/error.hpp"

namespace zeroplan::executor::test {

namespace {

using program::DataType;
using namespace std::chrono_literals;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

Tensor tensor_of(std::vector<std::byte>& bytes, DataType type) {
  return {.data = bytes.data(),
          .type = type,
          .elements = static_cast<Elements>(bytes.size()) / program::bytes_of(type)};
}

// Random finite patterns whose exponents differ, so that another order of additions gives other bits.
std::vector<std::byte> random_vector(std::int64_t rank, DataType type, Elements elements) {
  const auto seed = static_cast<std::uint32_t>(rank * 1000003 + elements * 7 + static_cast<int>(type));
  std::vector<std::byte> bytes(static_cast<std::size_t>(elements * program::bytes_of(type)));
  const auto size = static_cast<std::size_t>(program::bytes_of(type));
  for (std::size_t i = 0; i < static_cast<std::size_t>(elements); ++i) {
    auto pattern = (static_cast<std::uint32_t>(i) + seed) * 2654435761U;
    pattern = (pattern ^ (pattern >> 15)) * 2246822519U;
    pattern ^= pattern >> 13;
    if (type == DataType::fp32) pattern = (pattern & 0x8fffffffU) | 0x30000000U;
    if (type == DataType::fp16) pattern &= 0xbfffU;
    if (type == DataType::bf16) pattern = (pattern & 0x8fffU) | 0x3000U;
    std::memcpy(bytes.data() + i * size, &pattern, size);
  }
  return bytes;
}

struct Case {
  DataType type;
  Elements partition;  // and one element more than all partitions in the all_reduce
};

std::vector<Case> cases_for(std::int64_t n) {
  std::vector<Case> cases;
  for (const DataType type : {DataType::fp32, DataType::fp16, DataType::bf16}) {
    for (const Elements partition : {Elements{0}, Elements{1}, n - 1, n + 1, Elements{97}, Elements{4999}}) {
      cases.push_back({type, partition});
    }
  }
  // Three rounds through the buffer, which holds a piece of each other rank, the last of them short.
  const Bytes piece = kExchangeBufferBytes / std::max<std::int64_t>(1, n - 1);
  cases.push_back({DataType::fp32, 2 * piece / 4 + 17});
  cases.push_back({DataType::bf16, piece + 5});
  return cases;
}

// What this rank has after each collective of a case, one behind another.
std::vector<std::byte> results_of(Communicator& ranks, const Case& c) {
  std::vector<std::byte> all;
  const auto keep = [&](const std::vector<std::byte>& result) {
    all.insert(all.end(), result.begin(), result.end());
  };
  const auto part = [&](std::vector<std::byte>& whole) {
    Tensor tensor = tensor_of(whole, c.type);
    tensor.elements = c.partition;
    tensor.data += ranks.rank() * tensor.bytes();
    return tensor;
  };
  for (const Reduction reduction : {Reduction::sum, Reduction::maximum}) {
    auto reduced = random_vector(ranks.rank(), c.type, c.partition * ranks.size() + 1);
    ranks.all_reduce(tensor_of(reduced, c.type), reduction);
    keep(reduced);
  }
  auto scattered = random_vector(ranks.rank(), c.type, c.partition * ranks.size());
  ranks.reduce_scatter(tensor_of(scattered, c.type));
  const Tensor own = part(scattered);
  std::vector<std::byte> gathered(scattered.size());
  ranks.all_gather(own, tensor_of(gathered, c.type));
  keep(gathered);
  ranks.all_gather(own, tensor_of(scattered, c.type));
  require(gathered == scattered, "all_gather in place differs from all_gather into other memory");
  ranks.broadcast(tensor_of(gathered, c.type), ranks.size() - 1);
  auto sent = random_vector(ranks.rank(), c.type, c.partition);
  ranks.broadcast(tensor_of(sent, c.type), ranks.size() - 1);
  keep(sent);
  return all;
}

// What all ranks together carried of one call, against what its algorithm must move of S bytes.
void test_moved(Communicator& world) {
  using program::Op;
  for (const Elements partition : {Elements{0}, Elements{1}, Elements{97}, Elements{4999}}) {
    const Elements elements = partition * world.size();
    std::vector<std::byte> memory(static_cast<std::size_t>(elements) * 4);
    const Tensor whole = tensor_of(memory, DataType::fp32);
    Tensor own = whole;
    own.elements = partition;
    own.data += world.rank() * own.bytes();
    const auto expect = [&](Op op, std::int64_t times, auto&& call) {
      const Bytes before = world.moved().of(kind_of(op));
      call();
      float carried = static_cast<float>(world.moved().of(kind_of(op)) - before);  // small enough to be exact
      world.all_reduce({reinterpret_cast<std::byte*>(&carried), DataType::fp32, 1}, Reduction::sum);
      require(static_cast<Bytes>(carried) == times * (world.size() - 1) * whole.bytes(),
              fmt::format("{} bytes moved in a {} of {}", carried, program::name_of(op), whole.bytes()));
    };
    expect(Op::all_reduce, 2, [&] { world.all_reduce(whole, Reduction::sum); });
    expect(Op::reduce_scatter, 1, [&] { world.reduce_scatter(whole); });
    expect(Op::all_gather, 1, [&] { world.all_gather(own, whole); });
    expect(Op::broadcast, 1, [&] { world.broadcast(whole, world.size() - 1); });
  }
}

// Rank by rank a vector goes round, and one back, beside collectives; empty ones and long ones too.
void test_messages(Communicator& world) {
  if (world.size() == 1) return;
  const std::int64_t next = (world.rank() + 1) % world.size();
  const std::int64_t before = (world.rank() + world.size() - 1) % world.size();
  Bytes bytes = 0;
  for (const Elements elements :
       {Elements{0}, Elements{1}, Elements{97}, Elements{4999}, Elements{300'001}}) {
    auto own = random_vector(world.rank(), DataType::bf16, elements);
    std::vector<std::byte> got(own.size());
    const auto pass = [&](std::int64_t to, std::int64_t from) {
      const auto send = [&] { world.send(tensor_of(own, DataType::bf16), to); };
      // A send may wait for its receive: somebody has to receive first.
      if (world.rank() != 0) send();
      world.receive(tensor_of(got, DataType::bf16), from);
      if (world.rank() == 0) send();
      require(got == random_vector(from, DataType::bf16, elements), "a message has what was sent");
      bytes += static_cast<Bytes>(own.size());
    };
    pass(next, before);
    std::vector<std::byte> sum(4);
    world.all_reduce(tensor_of(sum, DataType::fp32), Reduction::sum);
    pass(before, next);
  }
  const auto total = [&](TransferKind kind) {
    for (const Ledger::Total& entry : world.ledger().totals) {
      if (entry.kind == kind) return std::pair(entry.calls, entry.bytes);
    }
    return std::pair(std::int64_t{0}, Bytes{0});
  };
  require(total(TransferKind::send) == std::pair(std::int64_t{10}, bytes), "the ledger's sends");
  require(total(TransferKind::receive) == std::pair(std::int64_t{10}, bytes), "the ledger's receives");
  require(world.moved().of(TransferKind::send) + world.moved().of(TransferKind::receive) == bytes,
          "each byte of a message is carried by one rank");
}

// Small data of the host.
void test_control(Communicator& world) {
  const auto rank = static_cast<std::uint16_t>(world.rank());
  const std::vector<std::uint16_t> all = gathered(world, rank);
  for (std::size_t r = 0; r < all.size(); ++r) require(all[r] == r, "gathered by rank");
  std::array<std::byte, 128> id{};
  if (world.rank() == world.size() - 1) id.fill(std::byte{7});
  world.share(id, world.size() - 1);
  require(id[0] == std::byte{7} && id[127] == std::byte{7}, "shared by the last rank");
  require(world.ledger().totals.empty(), "the control plane enters no ledger");
  require(world.capabilities().sums_in_rank_order, "sums have the bits of the order of ranks");
}

void test_results(Communicator& world) {
  test_control(world);
  run_ranks(world.size(), {}, test_control);
  test_messages(world);
  run_ranks(world.size(), {}, test_messages);
  test_moved(world);
  run_ranks(world.size(), {}, test_moved);
  // Bit by bit with what threads make of the same inputs.
  for (const Case& c : cases_for(world.size())) {
    const auto here = results_of(world, c);
    std::vector<std::byte> there;
    run_ranks(world.size(), {}, [&](Communicator& ranks) {
      const auto results = results_of(ranks, c);
      if (ranks.rank() == world.rank()) there = results;
    });
    require(here == there, fmt::format("bits differ from threads: partition of {}, type {}", c.partition,
                                       static_cast<int>(c.type)));
  }
  // And with arithmetic that both could have wrong.
  std::vector<std::byte> bytes(4);
  const auto mine = static_cast<float>(world.rank() + 1);
  std::memcpy(bytes.data(), &mine, 4);
  world.all_reduce(tensor_of(bytes, DataType::fp32), Reduction::sum);
  float sum = 0;
  std::memcpy(&sum, bytes.data(), 4);
  require(sum == static_cast<float>(world.size() * (world.size() + 1) / 2), "the sum of 1 ... n");

  const auto pair = world.split(world.rank() / 2 - 7, -world.rank());
  const std::int64_t pair_size = std::min<std::int64_t>(2, world.size() - world.rank() / 2 * 2);
  require(pair->size() == pair_size && pair->rank() == (pair_size == 1 ? 0 : 1 - world.rank() % 2),
          "split by key");
  std::memcpy(bytes.data(), &mine, 4);
  for (int i = 0; i < 300; ++i) pair->broadcast(tensor_of(bytes, DataType::fp32), 0);
  std::memcpy(&sum, bytes.data(), 4);
  require(sum == static_cast<float>(world.rank() / 2 * 2 + pair_size), "broadcast in a group");
  world.barrier();

  const Ledger& ledger = pair->ledger();
  require(ledger.totals.size() == 1 && ledger.totals[0].calls == 300 && ledger.totals[0].bytes == 1200,
          "the ledger");
  require(ledger.last.size() == 16 &&
              ledger.last.back() == LedgerEntry{299, TransferKind::broadcast, 1, DataType::fp32},
          "the ledger's last call");
  if (world.rank() == 0) fmt::print("results: ok\n");
}

void test_sends(Communicator& world) {
  const Elements elements = Elements{1} << 22;
  std::vector<std::byte> bytes(static_cast<std::size_t>(elements) * 4);
  const Tensor whole = tensor_of(bytes, DataType::fp32);
  Tensor own = whole;
  own.elements = elements / world.size();
  own.data += world.rank() * own.bytes();
  world.reduce_scatter(whole);
  world.all_gather(own, whole);
  world.all_reduce(whole, Reduction::sum);
}

void test_bandwidth(Communicator& world) {
  using Clock = std::chrono::steady_clock;
  for (const Bytes bytes : {4 * kKiB, kMiB, 64 * kMiB}) {
    std::vector<std::byte> memory(static_cast<std::size_t>(bytes));
    const Tensor whole = tensor_of(memory, DataType::fp32);
    const int calls = static_cast<int>(std::clamp<Bytes>(256 * kMiB / bytes, 5, 1000));
    world.all_reduce(whole, Reduction::sum);
    world.barrier();
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) world.all_reduce(whole, Reduction::sum);
    world.barrier();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count() / calls;
    if (world.rank() == 0) {
      fmt::print("all_reduce of {:>9} bytes: {:8.1f} us, {:.2f} GB/s\n", bytes, seconds * 1e6,
                 static_cast<double>(bytes) / seconds / kGB);
    }
  }
}

void fail(Communicator& world, const std::string& how) {
  const bool last = world.rank() == world.size() - 1;
  std::vector<std::byte> bytes(48);
  world.barrier();
  world.set_activity([r = world.rank()] { return fmt::format("matmul {}", r); });
  fmt::print("before call 1\n");
  std::fflush(stdout);
  if (last) {
    if (how == "timeout") std::this_thread::sleep_for(60s);
    if (how == "mismatch") world.reduce_scatter(tensor_of(bytes, DataType::fp32));
    if (how == "lengths") bytes.resize(4);
    if (how == "abort") world.abort("no more memory");
    if (how == "exception") throw std::runtime_error("broken");
    if (how == "configuration") throw ConfigurationError(Problem{"data.txt", 0, "", "no such file"});
    if (how == "exit") {
      std::this_thread::sleep_for(300ms);
      std::_Exit(0);
    }
  }
  world.all_reduce(tensor_of(bytes, DataType::fp32), Reduction::sum);
  world.barrier();
  throw std::logic_error(how + " did not end the run");
}

// The last rank does not come to a message that rank 0 waits for, and the others wait in a call of the control plane.
void lose_sender(Communicator& world) {
  std::vector<std::byte> bytes(48);
  world.barrier();
  world.set_activity([r = world.rank()] { return fmt::format("matmul {}", r); });
  if (world.rank() == world.size() - 1) std::this_thread::sleep_for(60s);
  if (world.rank() == 0) world.receive(tensor_of(bytes, DataType::fp32), world.size() - 1);
  world.barrier();
  throw std::logic_error("a lost sender did not end the run");
}

}  // namespace

void run_scenario(Communicator& world, const std::string& what) {
  if (what == "sender") return lose_sender(world);
  if (what == "results") return test_results(world);
  if (what == "sends") return test_sends(world);
  if (what == "bandwidth") return test_bandwidth(world);
  fail(world, what);
}

}  // namespace zeroplan::executor::test
