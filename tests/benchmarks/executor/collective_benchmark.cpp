#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "executor/communicator/threads/thread_communicator.hpp"
#include "tests/benchmarks/executor/median.hpp"

// Reduce-scatter and all-gather of ranks that are threads, beside what memory copy allows. A rank of n must
// read and write of a vector of B bytes
//   reduce-scatter   B + B / n           its partition of every rank's vector; the sum
//   all-gather       2 (n - 1) / n B     the others' partitions, each read and written once
// and `copy` is the rate at which n threads at once do that by memcpy (a copy of C bytes reads and writes 2
// C), on memory of the same size. Both are measured in turns. Counters: GB/s of a rank (medians), `share`,
// the collective's rate by the copy's, and the same of both's fastest turns, which other programs disturb
// less. More ranks than processors share them in both.

namespace {

using namespace zeroplan;
using executor::Tensor;
using program::DataType;
using program::Op;

double moved_bytes(Op collective, std::int64_t ranks, Bytes vector) {
  const auto n = static_cast<double>(ranks);
  const auto bytes = static_cast<double>(vector);
  return collective == Op::reduce_scatter ? bytes + bytes / n : 2 * (n - 1) / n * bytes;
}

// {ranks, MiB, DataType}
void compare(benchmark::State& state, Op collective) {
  const std::int64_t ranks = state.range(0);
  const Bytes bytes = state.range(1) * kMiB;
  const auto type = static_cast<DataType>(state.range(2));
  const double moved = moved_bytes(collective, ranks, bytes);
  const auto calls = static_cast<int>(std::max<Bytes>(2, 32 * kMiB / bytes));  // a turn
  std::vector<double> collective_seconds;                                      // of a call
  std::vector<double> copy_seconds;
  executor::run_ranks(ranks, executor::ThreadOptions{}, [&](executor::Communicator& world) {
    std::vector<std::byte> vector(static_cast<std::size_t>(bytes));  // zeros: sums stay what they are
    std::vector<std::byte> other(vector.size());
    std::memset(other.data(), 1, other.size());
    const Tensor whole{vector.data(), type, bytes / program::bytes_of(type)};
    const Elements partition = whole.elements / ranks;
    const Tensor own{vector.data() + world.rank() * partition * program::bytes_of(type), type, partition};
    const auto call = [&] {
      if (collective == Op::reduce_scatter) {
        world.reduce_scatter(whole);
      } else {
        world.all_gather(own, whole);
      }
    };
    const auto copied = static_cast<std::size_t>(moved / 2);
    const auto copy = [&] {
      for (std::size_t done = 0; done < copied; done += other.size()) {
        std::memcpy(other.data(), vector.data(), std::min(other.size(), copied - done));
        benchmark::DoNotOptimize(other.data());
        benchmark::ClobberMemory();
      }
    };
    const auto turn = [&](const auto& work) {
      work();
      world.barrier();
      const double seconds = benchmarks::seconds_of([&] {
        for (int i = 0; i < calls; ++i) work();
        world.barrier();
      });
      return seconds / calls;
    };
    const auto both = [&] {
      const double first = turn(call);
      const double second = turn(copy);
      if (world.rank() == 0) {
        collective_seconds.push_back(first);
        copy_seconds.push_back(second);
      }
      return first;
    };
    // Rank 0 has the benchmark's loop; the others follow for as long as it goes on.
    std::int32_t more = 1;
    std::int32_t* flag = &more;
    const Tensor go_on{reinterpret_cast<std::byte*>(flag), DataType::int32, 1};
    if (world.rank() == 0) {
      for (auto _ : state) {
        world.broadcast(go_on, 0);
        state.SetIterationTime(both());
      }
      *flag = 0;
      world.broadcast(go_on, 0);
    } else {
      while (true) {
        world.broadcast(go_on, 0);
        if (*flag == 0) break;
        both();
      }
    }
  });
  const double collective_rate = moved / benchmarks::median(collective_seconds) / 1e9;
  const double copy_rate = moved / benchmarks::median(copy_seconds) / 1e9;
  state.counters["collective"] = collective_rate;
  state.counters["copy"] = copy_rate;
  state.counters["share"] = collective_rate / copy_rate;
  state.counters["fastest"] = *std::min_element(copy_seconds.begin(), copy_seconds.end()) /
                              *std::min_element(collective_seconds.begin(), collective_seconds.end());
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"ranks", "MiB", "type"});
  for (const DataType type : {DataType::fp32, DataType::fp16, DataType::bf16}) {
    for (const std::int64_t ranks : {2, 4}) {
      for (const std::int64_t mib : {1, 16, 64})
        benchmark->Args({ranks, mib, static_cast<std::int64_t>(type)});
    }
  }
  benchmark->UseManualTime()->Unit(benchmark::kMicrosecond)->Iterations(25);
}
BENCHMARK_CAPTURE(compare, reduce_scatter, Op::reduce_scatter)->Apply(sizes);
BENCHMARK_CAPTURE(compare, all_gather, Op::all_gather)->Apply(sizes);

}  // namespace
