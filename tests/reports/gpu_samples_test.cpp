#include "reports/gpu_samples.hpp"

#include <doctest/doctest.h>

using namespace zeroplan;

namespace {

program::RankMeasurement rank_with(std::int64_t clock) {
  program::RankMeasurement rank;
  rank.gpu.count = 8;
  rank.gpu.interval_seconds = 0.1;
  rank.gpu.sm_clock_mhz = clock;
  rank.gpu.most_sm_clock_mhz = 1980;
  rank.gpu.held_back = 3;
  rank.gpu.with_reason[2] = 2;  // power cap
  rank.gpu.with_reason[5] = 1;  // heat
  return rank;
}

}  // namespace

TEST_CASE("clocks: those of the slowest GPU, and in how many samples each reason held them back") {
  program::Measurement measurement;
  measurement.of_rank = {program::RankMeasurement{}, rank_with(1700), rank_with(1600), rank_with(1800)};
  const reports::Data gpu = reports::slowest_gpu_data(measurement);
  CHECK(reports::number_at(gpu, "sm_clock_mhz") == 1600);
  CHECK(gpu.find("memory_clock_mhz")->is_null());  // not told
  CHECK(
      reports::clocks_text(gpu) ==
      "In 38 % of 8 samples, one every 0.1 s beside the steps, the clocks were held back: power cap in 25 %, "
      "software thermal slowdown in 12 %.");
  reports::Table table{{{"a", false}, {"b", false}, {"c"}, {"d"}}, {}, {}};
  reports::add_gpu_rows(table, gpu, 4, 3);
  REQUIRE(table.rows.size() == 3);  // two clocks and the share: what is not told has no row
  CHECK(reports::cell_text(table.rows[0][3]) == "1,600");
  measurement.of_rank.resize(1);
  CHECK(reports::slowest_gpu_data(measurement).is_null());
}
