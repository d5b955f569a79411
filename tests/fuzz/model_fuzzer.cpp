#include "planner/describe/model/model.hpp"
#include "tests/fuzz/refusal.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace zeroplan;
  fuzz::refuses_cleanly([&] {
    const describe::Model model = describe::read_model_yaml(fuzz::parse(fuzz::as_text(data, size)));
    fuzz::require(describe::count_parameters(model) >= describe::count_active_parameters(model));
  });
  return 0;
}
