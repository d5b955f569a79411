#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <limits>
#include <random>
#include <thread>

#include "planner/error.hpp"
#include "tests/executor/communicator_support.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;
using namespace zeroplan::executor::test;
using namespace std::chrono_literals;

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
    const auto is = [&](std::size_t i, TransferKind kind, std::int64_t calls, Bytes bytes) {
      const Ledger::Total& total = ledger.totals[i];
      return total.kind == kind && total.calls == calls && total.bytes == bytes;
    };
    require(is(0, TransferKind::all_reduce, 20, 400), "all_reduce");
    require(is(1, TransferKind::reduce_scatter, 1, 32), "reduce_scatter");
    require(is(2, TransferKind::all_gather, 1, 32), "all_gather");
    require(ledger.last.size() == 16, "the last 16");
    require(ledger.last.back() == LedgerEntry{22, TransferKind::all_gather, 8, DataType::fp32}, "the last");
    require(ledger.last.front() == LedgerEntry{7, TransferKind::all_reduce, 10, DataType::bf16}, "16 before");
  });
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
