#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "executor/device/cpu/cpu_device.hpp"
#include "tests/executor/communicator_support.hpp"

// Messages from one rank to another, which are threads.

using namespace zeroplan;
using namespace zeroplan::executor;
using namespace zeroplan::executor::test;
using namespace std::chrono_literals;

namespace {

void require_numbers_of(std::int64_t rank, const Vector& vector) {
  for (Elements i = 0; i < vector.count; ++i)
    require(vector.at(i) == pattern_of(number(rank, i), vector.type), "what the other rank sent");
}

ThreadOptions with_random_delays() {
  ThreadOptions options;
  options.delay = [](std::int64_t rank) {
    thread_local std::minstd_rand random(static_cast<unsigned>(rank + 1));
    if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 50));
  };
  return options;
}

}  // namespace

TEST_CASE("threads: a message of every type and of odd lengths between every two ranks") {
  for (const std::int64_t ranks : {2, 3, 5}) {
    run_ranks(ranks, with_random_delays(), [&](Communicator& own) {
      Bytes sent = 0, received = 0;
      for (const DataType type : kTypes) {
        for (const Elements elements : odd_sizes(ranks)) {
          for (std::int64_t from = 0; from < ranks; ++from) {
            for (std::int64_t to = 0; to < ranks; ++to) {
              if (from == to) continue;
              if (own.rank() == from) {
                Vector vector = numbers(from, type, elements);
                own.send(vector.tensor(), to);
                sent += static_cast<Bytes>(vector.bytes.size());
              } else if (own.rank() == to) {
                Vector vector(type, elements);
                own.receive(vector.tensor(), from);
                require_numbers_of(from, vector);
                received += static_cast<Bytes>(vector.bytes.size());
              }
            }
          }
        }
      }
      for (const Ledger::Total& total : own.ledger().totals)
        require(total.bytes == (total.kind == TransferKind::send ? sent : received), "the ledger's bytes");
      require(own.moved().of(TransferKind::receive) == received, "who receives carries");
      require(own.moved().of(TransferKind::send) == 0, "who sends carries nothing");
    });
  }
}

TEST_CASE("threads: messages of two groups and collectives do not get into each other's way") {
  run_ranks(4, with_random_delays(), [](Communicator& ranks) {
    const auto pair = ranks.split(ranks.rank() / 2, 0);
    for (int i = 0; i < 200; ++i) {
      Vector own = numbers(ranks.rank(), DataType::fp32, i);
      Vector of_pair(DataType::fp32, i), of_all(DataType::fp32, i);
      const std::int64_t other = 1 - pair->rank();
      if (pair->rank() == 0) pair->send(own.tensor(), other);
      pair->receive(of_pair.tensor(), other);
      if (pair->rank() == 1) pair->send(own.tensor(), other);
      require_numbers_of(ranks.rank() / 2 * 2 + other, of_pair);
      const std::int64_t across = (ranks.rank() + 2) % 4;
      if (ranks.rank() < 2) ranks.send(own.tensor(), across);
      if (ranks.rank() >= 2) ranks.receive(of_all.tensor(), across);
      if (ranks.rank() >= 2) require_numbers_of(across, of_all);
      std::vector<float> sum{1};
      ranks.all_reduce(of_floats(sum), Reduction::sum);
      require(sum[0] == 4, "the sum of ones");
    }
  });
}

TEST_CASE("threads: messages keep to the order of a device's stream") {
  run_ranks(2, {}, [](Communicator& ranks) {
    const auto device = make_cpu_device({});
    constexpr int kMessages = 50;
    std::vector<std::vector<float>> values(kMessages, std::vector<float>(100));
    std::vector<Transfer> transfers;
    const bool sends = ranks.rank() == 0;
    for (std::size_t i = 0; i < kMessages; ++i) {
      if (sends) std::fill(values[i].begin(), values[i].end(), static_cast<float>(i));
      transfers.push_back({.kind = sends ? TransferKind::send : TransferKind::receive,
                           .whole = of_floats(values[i]),
                           .other = 1 - ranks.rank()});
    }
    for (const Transfer& transfer : transfers)
      ranks.enqueue(transfer, *device, program::Stream::communication, {});
    device->synchronize();
    for (std::size_t i = 0; i < kMessages; ++i) require(values[i][99] == static_cast<float>(i), "in order");
  });
}

TEST_CASE("threads: a partner that does not come is named with the message and what it was doing") {
  struct Case {
    std::function<void(Communicator&, Tensor)> call;
    std::int64_t sender;
  };
  const std::vector<Case> cases{{[](Communicator& ranks, Tensor values) { ranks.send(values, 1); }, 0},
                                {[](Communicator& ranks, Tensor values) { ranks.receive(values, 1); }, 1}};
  for (const Case& c : cases) {
    CAPTURE(c.sender);
    std::atomic<bool> waiting = true;
    const auto said = messages(2, {.timeout = 200ms}, [&](Communicator& ranks) {
      ranks.set_activity([r = ranks.rank()] { return fmt::format("matmul {}", r); });
      std::vector<float> values(5);
      if (ranks.rank() == 1) {
        while (waiting) std::this_thread::sleep_for(1ms);
        return ranks.barrier();
      }
      try {
        c.call(ranks, of_floats(values));
      } catch (...) {
        waiting = false;
        throw;
      }
    });
    for (const std::string& message : said) {
      CHECK(message ==
            fmt::format("rank 1 did not come within 0.2 s to message 0 from rank {} of 5 fp32, where rank 0 "
                        "waited; rank 1 was at: matmul 1",
                        c.sender));
    }
  }
}

TEST_CASE("threads: messages that differ in length or type end on both ranks and name both") {
  for (const auto& [type, elements] :
       {std::pair{DataType::fp32, Elements{4}}, {DataType::bf16, Elements{5}}}) {
    const auto said = messages(2, {}, [&, type = type, elements = elements](Communicator& ranks) {
      Vector wanted(DataType::fp32, 5), given(type, elements);
      if (ranks.rank() == 0) ranks.send(given.tensor(), 1);
      if (ranks.rank() == 1) ranks.receive(wanted.tensor(), 0);
    });
    for (const std::string& message : said) {
      CHECK(contains(message,
                     fmt::format("rank 0 is in message 0 from rank 0 of {} {}; rank 1 is in message 0 from "
                                 "rank 0 of 5 fp32",
                                 elements, program::name_of(type))));
    }
  }
}

TEST_CASE("threads: a message to nobody, or to oneself, is a logic error") {
  std::vector<float> values(2);
  for (const std::int64_t other : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{2}}) {
    CAPTURE(other);
    CHECK_FALSE(messages<std::logic_error>(2, {},
                                           [&](Communicator& ranks) {
                                             if (ranks.rank() == 0) ranks.send(of_floats(values), other);
                                           })[0]
                    .empty());
    CHECK_FALSE(messages<std::logic_error>(2, {},
                                           [&](Communicator& ranks) {
                                             if (ranks.rank() == 0) ranks.receive(of_floats(values), other);
                                           })[0]
                    .empty());
  }
}

TEST_CASE("threads: whenever the run is stopped, a sender leaves with its memory unread") {
  for (int repetition = 0; repetition < 300; ++repetition) {
    const auto said = messages(3, with_random_delays(), [&](Communicator& ranks) {
      for (int i = 0;; ++i) {
        // Memory that is gone when a call throws: a reader of it would be found by a sanitizer.
        std::vector<float> values(1000, static_cast<float>(i));
        if (ranks.rank() == 0) ranks.send(of_floats(values), 1);
        if (ranks.rank() == 1) ranks.receive(of_floats(values), 0);
        if (ranks.rank() == 2) {
          std::this_thread::sleep_for(std::chrono::microseconds(repetition));
          ranks.abort("enough");
          return;
        }
      }
    });
    CHECK(said[0] == "rank 2: enough");
    CHECK(said[1] == "rank 2: enough");
  }
}
