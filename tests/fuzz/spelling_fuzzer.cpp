#include "planner/describe/model/model.hpp"
#include "tests/fuzz/refusal.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace zeroplan;
  fuzz::refuses_cleanly([&] {
    const describe::Model model = describe::read_model_spelling(fuzz::as_text(data, size));
    fuzz::require(describe::count_parameters(model) >= 0);
  });
  return 0;
}
