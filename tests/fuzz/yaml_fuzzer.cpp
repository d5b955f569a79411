#include "planner/describe/text/document.hpp"
#include "tests/fuzz/document_promises.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace zeroplan;
  const std::string_view text = fuzz::as_text(data, size);
  fuzz::refuses_cleanly([&] { fuzz::check_document(describe::parse_yaml(text, "fuzz.yaml"), text); });
  return 0;
}
