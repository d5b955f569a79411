#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "executor/communicator/threads/thread_communicator.hpp"
#include "executor/error.hpp"
#include "planner/error.hpp"

namespace {

using namespace zeroplan;
using namespace zeroplan::executor;
using program::DataType;
using namespace std::chrono_literals;

constexpr DataType kTypes[] = {DataType::fp32, DataType::fp16, DataType::bf16};

// What one rank found wrong ends the run and fails the test: doctest's own checks are for one thread.
void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// A whole number in -8 ... 8: its sums over up to 9 ranks are exact in every type.
std::int64_t number(std::int64_t rank, std::int64_t i) {
  return (rank * 7919 + i * 104729 + rank * i) % 17 - 8;
}

// Whole numbers up to 255 as bit patterns, without the code under test: sign, exponent, fraction.
std::uint32_t pattern_of(std::int64_t value, DataType type) {
  if (value == 0) return 0;
  const auto magnitude = static_cast<std::uint32_t>(value < 0 ? -value : value);
  const auto exponent = static_cast<std::uint32_t>(std::bit_width(magnitude) - 1);
  const std::uint32_t fraction_bits = type == DataType::fp32 ? 23 : type == DataType::fp16 ? 10 : 7;
  const std::uint32_t bias = type == DataType::fp16 ? 15 : 127;
  const std::uint32_t sign = value < 0 ? (type == DataType::fp32 ? 1U << 31 : 1U << 15) : 0;
  const std::uint32_t fraction =
      fraction_bits >= exponent ? (magnitude - (1U << exponent)) << (fraction_bits - exponent) : 0;
  return sign | ((exponent + bias) << fraction_bits) | fraction;
}

struct Vector {
  Vector(DataType data_type, Elements elements)
      : type(data_type),
        bytes(static_cast<std::size_t>(elements * program::bytes_of(data_type))),
        count(elements) {}

  void set(Elements i, std::uint32_t pattern) {
    const auto size = static_cast<std::size_t>(program::bytes_of(type));
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * size, &pattern, size);
  }
  std::uint32_t at(Elements i) const {
    std::uint32_t pattern = 0;
    const auto size = static_cast<std::size_t>(program::bytes_of(type));
    std::memcpy(&pattern, bytes.data() + static_cast<std::size_t>(i) * size, size);
    return pattern;
  }
  Tensor tensor() { return {.data = bytes.data(), .type = type, .elements = count}; }
  Tensor part(Elements first, Elements elements) {
    return {.data = bytes.data() + first * program::bytes_of(type), .type = type, .elements = elements};
  }

  DataType type;
  std::vector<std::byte> bytes;
  Elements count;
};

Vector numbers(std::int64_t rank, DataType type, Elements elements) {
  Vector vector(type, elements);
  for (Elements i = 0; i < elements; ++i) vector.set(i, pattern_of(number(rank, i), type));
  return vector;
}

std::int64_t sum_of(std::int64_t ranks, Elements i) {
  std::int64_t sum = 0;
  for (std::int64_t r = 0; r < ranks; ++r) sum += number(r, i);
  return sum;
}

std::int64_t maximum_of(std::int64_t ranks, Elements i) {
  std::int64_t maximum = number(0, i);
  for (std::int64_t r = 1; r < ranks; ++r) maximum = std::max(maximum, number(r, i));
  return maximum;
}

std::vector<Elements> odd_sizes(std::int64_t n) { return {0, 1, n - 1, n, n + 1, 2, 31, 97, 1009, 4999}; }

// One message per rank: what its exception said.
template <class Error = CommunicationError, class Function>
std::vector<std::string> messages(std::int64_t ranks, const ThreadOptions& options, Function function) {
  const auto communicators = make_thread_communicators(ranks, options);
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> running;
  for (std::size_t r = 0; r < said.size(); ++r) {
    running.emplace_back([&, r] {
      try {
        function(*communicators[r]);
      } catch (const Error& error) {
        said[r] = error.what();
      }
    });
  }
  running.clear();
  return said;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Tensor of_floats(std::vector<float>& values) {
  return {.data = reinterpret_cast<std::byte*>(values.data()),
          .type = DataType::fp32,
          .elements = static_cast<Elements>(values.size())};
}

}  // namespace

TEST_CASE("threads: all_reduce gives every rank the exact sum and maximum at any length") {
  for (std::int64_t n = 1; n <= 9; ++n) {
    run_ranks(n, {}, [n](Communicator& ranks) {
      for (const DataType type : kTypes) {
        for (const Elements elements : odd_sizes(n)) {
          for (const Reduction reduction : {Reduction::sum, Reduction::maximum}) {
            Vector vector = numbers(ranks.rank(), type, elements);
            ranks.all_reduce(vector.tensor(), reduction);
            for (Elements i = 0; i < elements; ++i) {
              const std::int64_t expected = reduction == Reduction::sum ? sum_of(n, i) : maximum_of(n, i);
              require(vector.at(i) == pattern_of(expected, type),
                      fmt::format("element {} of {}", i, elements));
            }
          }
        }
      }
    });
  }
}

TEST_CASE("threads: reduce_scatter leaves the exact sum in this rank's partition") {
  for (std::int64_t n = 1; n <= 9; ++n) {
    run_ranks(n, {}, [n](Communicator& ranks) {
      for (const DataType type : kTypes) {
        for (const Elements partition : {Elements{0}, Elements{1}, n, Elements{7}, Elements{2551}}) {
          Vector vector = numbers(ranks.rank(), type, partition * n);
          ranks.reduce_scatter(vector.tensor());
          for (Elements i = 0; i < partition; ++i) {
            const Elements at = ranks.rank() * partition + i;
            require(vector.at(at) == pattern_of(sum_of(n, at), type), fmt::format("element {}", at));
          }
        }
      }
    });
  }
}

TEST_CASE("threads: all_gather, from a partition in place or elsewhere, of every type") {
  for (std::int64_t n = 1; n <= 9; ++n) {
    run_ranks(n, {}, [n](Communicator& ranks) {
      for (const DataType type :
           {DataType::fp32, DataType::fp16, DataType::bf16, DataType::int32, DataType::uint8}) {
        for (const Elements partition : {Elements{0}, Elements{1}, n + 1, Elements{1009}}) {
          for (const bool in_place : {false, true}) {
            Vector whole(type, partition * n);
            Vector own(type, partition);
            const Elements first = ranks.rank() * partition;
            for (Elements i = 0; i < partition; ++i) {
              const auto pattern = static_cast<std::uint32_t>((first + i) * 37 % 251);
              in_place ? whole.set(first + i, pattern) : own.set(i, pattern);
            }
            ranks.all_gather(in_place ? whole.part(first, partition) : own.tensor(), whole.tensor());
            for (Elements i = 0; i < whole.count; ++i) {
              require(whole.at(i) == static_cast<std::uint32_t>(i * 37 % 251), fmt::format("element {}", i));
            }
          }
        }
      }
    });
  }
}

TEST_CASE("threads: broadcast from every root") {
  for (const std::int64_t n : {1, 2, 5}) {
    run_ranks(n, {}, [n](Communicator& ranks) {
      for (std::int64_t root = 0; root < n; ++root) {
        for (const Elements elements : {0, 1, 1009}) {
          Vector vector = numbers(ranks.rank(), DataType::bf16, elements);
          ranks.broadcast(vector.tensor(), root);
          for (Elements i = 0; i < elements; ++i) {
            require(vector.at(i) == pattern_of(number(root, i), DataType::bf16), "element");
          }
        }
      }
    });
  }
}

TEST_CASE(
    "threads: fp32 sums are those of ranks 0, 1, 2 ... in order, near the double sum, alike in all "
    "collectives") {
  constexpr std::int64_t kRanks = 7;
  constexpr Elements kPartition = 601;
  std::vector<std::vector<float>> inputs;
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  for (std::int64_t r = 0; r < kRanks; ++r) {
    std::vector<float>& input = inputs.emplace_back(kPartition * kRanks);
    for (float& value : input) value = normal(random) * std::exp2(normal(random) * 4);
  }
  run_ranks(kRanks, {}, [&](Communicator& ranks) {
    auto reduced = inputs[static_cast<std::size_t>(ranks.rank())];
    auto scattered = reduced;
    ranks.all_reduce(of_floats(reduced), Reduction::sum);
    ranks.reduce_scatter(of_floats(scattered));
    for (std::size_t i = 0; i < reduced.size(); ++i) {
      float in_order = inputs[0][i];
      double exact = 0, magnitude = 0;
      for (const auto& input : inputs) {
        exact += input[i];
        magnitude += std::abs(input[i]);
      }
      for (std::size_t r = 1; r < inputs.size(); ++r) in_order += inputs[r][i];
      require(reduced[i] == in_order, "order of the sum");
      require(std::abs(reduced[i] - exact) <= kRanks * std::exp2(-24.0) * magnitude, "the sum");
      const bool own = static_cast<std::int64_t>(i) / kPartition == ranks.rank();
      require(!own || scattered[i] == in_order, "reduce_scatter differs from all_reduce");
    }
  });
}

TEST_CASE("threads: 16-bit types are rounded once") {
  // Rounded after every addition, a tie to even each time, the ones would all be lost.
  struct Case {
    DataType type;
    std::uint16_t large, one, sum;
  };
  for (const Case& c : {Case{DataType::bf16, 0x4380, 0x3f80, 0x4381},     // 256 + 1 + 1 = 258
                        Case{DataType::fp16, 0x6800, 0x3c00, 0x6801}}) {  // 2048 + 1 + 1 = 2050
    run_ranks(3, {}, [&](Communicator& ranks) {
      Vector vector(c.type, 1);
      vector.set(0, ranks.rank() == 0 ? c.large : c.one);
      ranks.all_reduce(vector.tensor(), Reduction::sum);
      require(vector.at(0) == c.sum, fmt::format("{:#x}", vector.at(0)));
    });
  }
}

TEST_CASE("threads: infinity and NaN reach every rank, whichever rank has them") {
  for (std::int64_t holder = 0; holder < 3; ++holder) {
    for (const Reduction reduction : {Reduction::sum, Reduction::maximum}) {
      run_ranks(3, {}, [&](Communicator& ranks) {
        std::vector<float> values = {1, 2};
        if (ranks.rank() == holder) {
          values = {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()};
        }
        ranks.all_reduce(of_floats(values), reduction);
        require(std::isinf(values[0]) && std::isnan(values[1]), "lost");
      });
    }
  }
}

TEST_CASE("threads: split makes groups ordered by key, then by rank, which split again") {
  run_ranks(6, {}, [](Communicator& ranks) {
    // Columns of a 2 x 3 grid by color, in reverse by key.
    const auto column = ranks.split(ranks.rank() % 3, -ranks.rank());
    require(column->size() == 2 && column->rank() == 1 - ranks.rank() / 3, "column");
    const auto row = ranks.split(ranks.rank() / 3, 0);
    require(row->size() == 3 && row->rank() == ranks.rank() % 3, "row");
    for (int i = 0; i < 20; ++i) {
      std::vector<float> in_column = {static_cast<float>(ranks.rank())};
      auto in_row = in_column;
      column->all_reduce(of_floats(in_column), Reduction::sum);
      row->all_reduce(of_floats(in_row), Reduction::sum);
      require(in_column[0] == static_cast<float>(2 * (ranks.rank() % 3) + 3), "sum of a column");
      require(in_row[0] == static_cast<float>(ranks.rank() < 3 ? 3 : 12), "sum of a row");
    }
    const auto alone = row->split(row->rank(), 0);
    require(alone->size() == 1 && alone->rank() == 0, "alone");
    std::vector<float> own = {3};
    alone->all_reduce(of_floats(own), Reduction::sum);
    require(own[0] == 3, "a sum of one");
  });
}

TEST_CASE("threads: the ledger counts whole vectors, and keeps the last 16 calls") {
  run_ranks(2, {}, [](Communicator& ranks) {
    Vector halves(DataType::bf16, 10);
    std::vector<float> floats(8);
    ranks.barrier();
    for (int i = 0; i < 20; ++i) ranks.all_reduce(halves.tensor(), Reduction::sum);
    ranks.reduce_scatter(of_floats(floats));
    const auto half = static_cast<std::size_t>(ranks.rank()) * 4;
    Tensor own = of_floats(floats);
    own.data += half * sizeof(float);
    own.elements = 4;
    ranks.all_gather(own, of_floats(floats));
    const Ledger& ledger = ranks.ledger();
    require(ledger.totals.size() == 3, "three collectives");
    const auto is = [&](std::size_t i, program::Op collective, std::int64_t calls, Bytes bytes) {
      const Ledger::Total& total = ledger.totals[i];
      return total.collective == collective && total.calls == calls && total.bytes == bytes;
    };
    require(is(0, program::Op::all_reduce, 20, 400), "all_reduce");
    require(is(1, program::Op::reduce_scatter, 1, 32), "reduce_scatter");
    require(is(2, program::Op::all_gather, 1, 32), "all_gather");
    require(ledger.last.size() == 16, "the last 16");
    require(ledger.last.back() == LedgerEntry{22, program::Op::all_gather, 8, DataType::fp32}, "the last");
    require(ledger.last.front() == LedgerEntry{7, program::Op::all_reduce, 10, DataType::bf16}, "16 before");
  });
}

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
      ranks.set_activity(fmt::format("instruction {}", ranks.rank()));
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
    ranks.set_activity(fmt::format("matmul {}", ranks.rank()));
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
                              ranks.set_activity("a kernel that does not end");
                              if (ranks.rank() == 0) ranks.barrier();
                              while (!released) std::this_thread::sleep_for(1ms);
                            }),
                  CommunicationError);
  CHECK(contains(report, "rank 1 did not come within 0.1 s to call 0, barrier"));
  CHECK(contains(report, "rank 1 does not end: rank 1 was at: a kernel that does not end"));
}

TEST_CASE("threads: 200 repetitions with random delays give the same results") {
  constexpr std::int64_t kRanks = 4;
  ThreadOptions options;
  options.delay = [](std::int64_t rank) {
    thread_local std::minstd_rand random(static_cast<unsigned>(rank + 1));
    if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
  };
  run_ranks(kRanks, options, [](Communicator& ranks) {
    const auto pair = ranks.split(ranks.rank() / 2, 0);
    for (int repetition = 0; repetition < 200; ++repetition) {
      const Elements partition = repetition % 37;
      Vector vector = numbers(ranks.rank(), DataType::fp32, partition * kRanks);
      ranks.reduce_scatter(vector.tensor());
      ranks.all_gather(vector.part(ranks.rank() * partition, partition), vector.tensor());
      for (Elements i = 0; i < vector.count; ++i) {
        require(vector.at(i) == pattern_of(sum_of(kRanks, i), DataType::fp32),
                "reduce_scatter and all_gather");
      }
      std::vector<float> value = {static_cast<float>(ranks.rank() * repetition)};
      pair->all_reduce(of_floats(value), Reduction::sum);
      require(value[0] == static_cast<float>((ranks.rank() < 2 ? 1 : 5) * repetition), "all_reduce");
      // Memory that others have read is written, and freed, at once.
    }
  });
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
