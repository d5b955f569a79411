#include "planner/describe/plan/engine.hpp"
#include "planner/describe/plan/optimizer.hpp"
#include "tests/fuzz/refusal.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace zeroplan;
  fuzz::refuses_cleanly([&] {
    const describe::Document document = fuzz::parse(fuzz::as_text(data, size));
    fuzz::refuses_cleanly([&] { (void)describe::read_engine_yaml(document); });
    fuzz::refuses_cleanly([&] { (void)describe::read_optimizer_yaml(document); });
  });
  return 0;
}
