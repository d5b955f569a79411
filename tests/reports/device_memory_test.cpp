#include "reports/device_memory.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>

#include "tests/support/predicted.hpp"

using namespace zeroplan;
using program::MemoryPoint;

namespace {

constexpr Bytes kGranule = 2 * kMiB;
constexpr Bytes kContext = 500 * kMiB, kCommunicators = 300 * kMiB, kWorkspace = 32 * kMiB;

predict::Prediction predicted_run() {
  predict::Prediction prediction =
      test::predicted("gpt2-xl", "gpus=2 zero=1 seq=512 engine=native", "a100-80gb");
  CHECK(prediction.driver_granule == kGranule);
  prediction.overheads = {{"context", kContext, ""},
                          {"communicators", kCommunicators, ""},
                          {"library_workspace", kWorkspace, ""}};
  prediction.peak_bytes = prediction.memory().peak + kContext + kCommunicators + kWorkspace;
  return prediction;
}

// Ranks in processes of their own whose driver counts what was predicted, and `more` on the second one.
program::Measurement measured_run(const predict::Prediction& prediction, Bytes more) {
  program::Measurement measurement;
  for (std::int64_t r = 0; r < 2; ++r) {
    program::RankMeasurement rank;
    rank.process = r;
    const std::array<Bytes, program::kMemoryPoints> growths{kContext, prediction.memory().peak,
                                                            kCommunicators, kWorkspace + r * more, 0};
    Bytes held = 0;
    for (std::size_t i = 0; i < growths.size(); ++i) {
      held += growths.at(i);
      rank.device_memory.at(i) = {80 * kGiB, held + 7 * kGiB, held,
                                  held + 8 * kGiB};  // somebody else has 7 GiB
    }
    measurement.of_rank.push_back(rank);
  }
  return measurement;
}

}  // namespace

TEST_CASE("device memory: lines of the rank with most, by what each point adds") {
  const predict::Prediction prediction = predicted_run();
  const auto lines = reports::device_memory(prediction, measured_run(prediction, 50 * kMiB));
  REQUIRE(lines.size() == program::kMemoryPoints);
  CHECK(lines[0].point == MemoryPoint::opened);
  CHECK(lines[0].growth == kContext);
  CHECK(lines[0].predicted_growth == kContext);
  CHECK(lines[1].growth == prediction.memory().peak);
  CHECK(lines[1].predicted_growth == round_up(prediction.memory().peak, kGranule));
  CHECK(lines[2].growth == kCommunicators);
  CHECK(lines[2].predicted_growth == kCommunicators);
  CHECK(lines[3].growth == kWorkspace + 50 * kMiB);
  CHECK(lines[3].predicted_growth == kWorkspace);
  CHECK(lines[4].nvml_used == lines[4].used + 8 * kGiB);
  CHECK(lines[4].nvml_of_process == lines[4].used);
  CHECK(lines[4].used == prediction.peak_bytes + 50 * kMiB);
}

TEST_CASE(
    "device memory: the whole device is within 200 MiB or 1 %, and counts only where a process is one rank") {
  const predict::Prediction prediction = predicted_run();
  const Bytes tolerance = std::max<Bytes>(200 * kMiB, prediction.peak_bytes / 100);
  CHECK(reports::device_total(prediction, measured_run(prediction, tolerance - kMiB))->ok());
  CHECK_FALSE(reports::device_total(prediction, measured_run(prediction, tolerance + kMiB))->ok());
  program::Measurement threads = measured_run(prediction, 0);
  threads.of_rank[1].process = threads.of_rank[0].process;
  CHECK_FALSE(reports::device_total(prediction, threads));
  for (program::RankMeasurement& rank : threads.of_rank) rank.device_memory = {};
  CHECK(reports::device_memory(prediction, threads).empty());
}

TEST_CASE("device memory: zones between buffers count with the buffers, before that is rounded to granules") {
  const predict::Prediction prediction = predicted_run();
  program::Measurement measurement = measured_run(prediction, 0);
  const Bytes whole = round_up(prediction.memory().peak, kGranule);
  const Bytes left = whole - prediction.memory().peak;
  const auto arena_with = [&](Bytes zones) {
    for (program::RankMeasurement& rank : measurement.of_rank) rank.device_zone_bytes = zones;
    return reports::device_memory(prediction, measurement)[1].predicted_growth;
  };
  CHECK(arena_with(left) == whole);
  CHECK(arena_with(left + 1) == whole + kGranule);
}
