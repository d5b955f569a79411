#include <doctest/doctest.h>

#include <string>

#include "tests/support/predicted.hpp"

using namespace zeroplan;
using test::predicted;

namespace {

Bytes term(const predict::Prediction& prediction, const std::string& name) {
  for (const predict::OverheadTerm& one : prediction.overheads) {
    if (one.name == name) return one.bytes;
  }
  return 0;
}

}  // namespace

TEST_CASE(
    "the driver's granularity: what the engine asks of it comes in whole granules, as a line of its own") {
  for (const char* plan :
       {"gpus=1 engine=native", "gpus=4 zero=3 engine=native", "gpus=2 tp=2 engine=native seq=333"}) {
    CAPTURE(plan);
    const predict::Prediction prediction = predicted("gpt2", plan, "a100-80gb");
    const Bytes rounding = term(prediction, "granularity");
    CHECK(rounding >= 0);
    CHECK(rounding < 2 * kMiB);
    CHECK((prediction.memory().peak + rounding) % (2 * kMiB) == 0);
    Bytes others = 0;
    for (const predict::OverheadTerm& one : prediction.overheads) others += one.bytes;
    CHECK(prediction.peak_bytes == prediction.memory().peak + others);
  }
}

TEST_CASE("the driver's granularity: not where another allocator stands between, nor on processors") {
  CHECK(term(predicted("gpt2", "gpus=1 engine=deepspeed", "a100-80gb"), "granularity") == 0);
  const predict::Prediction on_host = predicted("gpt2", "gpus=1 engine=native", "cpu");
  CHECK(term(on_host, "granularity") == 0);
  CHECK(on_host.driver_granule == 1);
}
