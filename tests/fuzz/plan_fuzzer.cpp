#include "planner/describe/plan/plan.hpp"
#include "tests/fuzz/refusal.hpp"

// Every reader of plan files, and the resolution of what they read: a plan or a refusal.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace zeroplan;
  static const describe::Model model = describe::resolve_model("gpt2");
  fuzz::refuses_cleanly([&] {
    const describe::PlanFile file = describe::read_plan_document(fuzz::parse(fuzz::as_text(data, size)));
    (void)describe::resolve_plan(file.options, model, "dgx2");
  });
  return 0;
}
