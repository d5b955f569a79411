#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "planner/error.hpp"
#include "tests/executor/communicator_support.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;
using namespace zeroplan::executor::test;
using namespace std::chrono_literals;

TEST_CASE("threads: arguments that cannot be are logic errors on the rank that has them") {
  std::vector<float> floats(7);
  const Tensor seven = of_floats(floats);
  Tensor three = seven;
  three.elements = 3;
  Tensor integers = seven;
  integers.type = DataType::int32;
  const Tensor nowhere = {.data = nullptr, .type = DataType::fp32, .elements = 2};
  const auto fails = [&](auto call) {
    const auto said = messages<std::logic_error>(2, {}, [&](Communicator& ranks) { call(ranks); });
    return !said[0].empty() && !said[1].empty();
  };
  CHECK(fails([&](Communicator& ranks) { ranks.reduce_scatter(seven); }));
  CHECK(fails([&](Communicator& ranks) { ranks.all_gather(three, seven); }));
  CHECK(fails([&](Communicator& ranks) { ranks.all_gather(nowhere, seven); }));
  CHECK(fails([&](Communicator& ranks) { ranks.broadcast(seven, 2); }));
  CHECK(fails([&](Communicator& ranks) { ranks.all_reduce(integers, Reduction::sum); }));
  CHECK(fails([&](Communicator& ranks) { ranks.all_reduce(nowhere, Reduction::sum); }));
  CHECK(fails([&](Communicator& ranks) {
    Tensor six = seven;
    six.elements = 6;
    Tensor shifted = three;
    shifted.data += sizeof(float);
    ranks.all_gather(shifted, six);
  }));
  CHECK_THROWS_AS(make_thread_communicators(0, {}), std::logic_error);
}

TEST_CASE("threads: calls that differ in operation, length or type end on all ranks and name both") {
  struct Case {
    std::function<void(Communicator&)> odd;
    std::string text;
  };
  std::vector<Case> cases;
  cases.push_back({[](Communicator& ranks) {
                     std::vector<float> values(12);
                     ranks.reduce_scatter(of_floats(values));
                   },
                   "reduce_scatter of 12 fp32"});
  cases.push_back({[](Communicator& ranks) {
                     std::vector<float> values(13);
                     ranks.all_reduce(of_floats(values), Reduction::sum);
                   },
                   "all_reduce (sum) of 13 fp32"});
  cases.push_back({[](Communicator& ranks) {
                     Vector values(DataType::fp16, 12);
                     ranks.all_reduce(values.tensor(), Reduction::sum);
                   },
                   "all_reduce (sum) of 12 fp16"});
  cases.push_back({[](Communicator& ranks) {
                     std::vector<float> values(12);
                     ranks.all_reduce(of_floats(values), Reduction::maximum);
                   },
                   "all_reduce (maximum) of 12 fp32"});
  cases.push_back({[](Communicator& ranks) { ranks.barrier(); }, "barrier"});
  cases.push_back({[](Communicator& ranks) { ranks.split(0, 0); }, "split"});
  for (const Case& c : cases) {
    CAPTURE(c.text);
    const auto said = messages(4, {}, [&](Communicator& ranks) {
      ranks.set_activity([r = ranks.rank()] { return fmt::format("instruction {}", r); });
      ranks.barrier();
      if (ranks.rank() == 2) return c.odd(ranks);
      std::vector<float> values(12);
      ranks.all_reduce(of_floats(values), Reduction::sum);
    });
    for (const std::string& message : said) {
      CHECK(
          message ==
          fmt::format("ranks are out of step: rank 0 is in call 1, all_reduce (sum) of 12 fp32; rank 2 is in "
                      "call 1, {} (rank 0 was at: instruction 0; rank 2 was at: instruction 2)",
                      c.text));
    }
  }
}

TEST_CASE("threads: a rank that does not come is named to all with what it was doing, also to later calls") {
  const auto start = std::chrono::steady_clock::now();
  std::atomic<int> waiting = 3;
  const auto said = messages(4, {.timeout = 200ms}, [&](Communicator& ranks) {
    ranks.barrier();
    ranks.set_activity([r = ranks.rank()] { return fmt::format("matmul {}", r); });
    if (ranks.rank() == 2) {
      while (waiting > 0) std::this_thread::sleep_for(1ms);
    }
    std::vector<float> values(5);
    try {
      ranks.all_reduce(of_floats(values), Reduction::sum);
    } catch (...) {
      --waiting;
      throw;
    }
  });
  for (const std::string& message : said) {
    CHECK(
        message ==
        "rank 2 did not come within 0.2 s to call 1, all_reduce (sum) of 5 fp32, where ranks 0, 1, 3 waited; "
        "rank 2 was at: matmul 2");
  }
  const auto took = std::chrono::steady_clock::now() - start;
  CHECK(took >= 200ms);
  CHECK(took < 10s);
}

TEST_CASE("threads: abort wakes ranks that wait in other groups, with the reason and its rank") {
  for (int repetition = 0; repetition < 20; ++repetition) {
    const auto said = messages(4, {}, [&](Communicator& ranks) {
      const auto pair = ranks.split(ranks.rank() / 2, 0);
      if (ranks.rank() == 3) {
        pair->abort("no more memory");
        pair->barrier();
      } else if (ranks.rank() == 2) {
        pair->barrier();
      } else {
        ranks.barrier();
      }
    });
    for (const std::string& message : said) CHECK(message == "rank 3: no more memory");
  }
}

TEST_CASE(
    "run_ranks: the first exception of a rank comes back with its rank, its kind, and the others stopped") {
  const auto failing = [](const std::function<void()>& failure) {
    return [failure](Communicator& ranks) {
      ranks.barrier();
      if (ranks.rank() == 1) failure();
      ranks.barrier();
    };
  };
  CHECK_THROWS_WITH_AS(run_ranks(3, {}, failing([] { throw DeviceError("8 GiB are not free"); })),
                       "rank 1: 8 GiB are not free", DeviceError);
  CHECK_THROWS_WITH_AS(run_ranks(3, {}, failing([] { throw CommunicationError("lost"); })), "rank 1: lost",
                       CommunicationError);
  CHECK_THROWS_WITH_AS(run_ranks(3, {}, failing([] { throw std::logic_error("a check"); })),
                       "rank 1: a check", std::logic_error);
  CHECK_THROWS_WITH_AS(run_ranks(3, {}, failing([] { throw 5; })),
                       "rank 1: an exception that is no std::exception", std::runtime_error);
  CHECK_THROWS_AS(run_ranks(3, {}, failing([] {
                              throw ConfigurationError(Problem{"data.txt", 0, "", "no such file"});
                            })),
                  ConfigurationError);
  CHECK_THROWS_WITH_AS(run_ranks(2, {}, [](Communicator& ranks) { ranks.abort("enough"); }),
                       doctest::Contains(": enough"), CommunicationError);
  CHECK_THROWS_WITH_AS(run_ranks(2, {.timeout = 50ms},
                                 [](Communicator& ranks) {
                                   if (ranks.rank() == 1) ranks.barrier();
                                 }),
                       doctest::Contains("rank 1: rank 0 did not come within 0.05 s to call 0, barrier"),
                       CommunicationError);
}

TEST_CASE("run_ranks: a rank that never comes back is reported where the process can be ended") {
  std::atomic<bool> released = false;
  std::string report;
  ThreadOptions options{.timeout = 100ms};
  options.stalled = [&](const std::string& text) {
    report = text;
    released = true;
  };
  CHECK_THROWS_AS(run_ranks(2, options,
                            [&](Communicator& ranks) {
                              ranks.set_activity([] { return std::string("a kernel that does not end"); });
                              if (ranks.rank() == 0) ranks.barrier();
                              while (!released) std::this_thread::sleep_for(1ms);
                            }),
                  CommunicationError);
  CHECK(contains(report, "rank 1 did not come within 0.1 s to call 0, barrier"));
  CHECK(contains(report, "rank 1 does not end: rank 1 was at: a kernel that does not end"));
}

TEST_CASE("threads: whenever a rank stops the run, nobody hangs and nobody reads memory that is gone") {
  std::mt19937 random(5);
  for (int repetition = 0; repetition < 100; ++repetition) {
    const std::int64_t stopper = random() % 4;
    const auto calls = random() % 8;
    CHECK_THROWS_WITH_AS(run_ranks(4, {},
                                   [&](Communicator& ranks) {
                                     for (unsigned call = 0;; ++call) {
                                       if (ranks.rank() == stopper && call == calls)
                                         throw DeviceError("broken");
                                       Vector vector = numbers(ranks.rank(), DataType::bf16, 4000);
                                       ranks.all_reduce(vector.tensor(), Reduction::sum);
                                     }
                                   }),
                         fmt::format("rank {}: broken", stopper).c_str(), DeviceError);
  }
}
