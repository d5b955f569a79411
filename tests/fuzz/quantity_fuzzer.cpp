#include <cmath>
#include <limits>
#include <stdexcept>

#include "planner/describe/text/quantity.hpp"
#include "tests/fuzz/refusal.hpp"

namespace {

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

// Quantities refuse with std::invalid_argument: what was found and what was expected, on one line.
template <class Parse>
void parses_or_refuses(Parse&& parse) {
  try {
    parse();
  } catch (const std::invalid_argument& error) {
    const std::string_view message = error.what();
    zeroplan::fuzz::require(message.find("found ") == 0 &&
                            message.find(", expected ") != std::string_view::npos);
    for (const char c : message) zeroplan::fuzz::require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace zeroplan;
  using fuzz::require;
  const std::string_view text = fuzz::as_text(data, size);
  parses_or_refuses([&] { (void)describe::parse_integer(text, kLeast, kMost); });
  parses_or_refuses([&] {
    const std::int64_t value = describe::parse_integer(text, 0, 1'000'000);
    require(value >= 0 && value <= 1'000'000);
    require(describe::parse_count(text, 0, 1'000'000) == value);
    require(describe::parse_bytes(text) == value);
  });
  parses_or_refuses([&] { (void)describe::parse_count(text, kLeast, kMost); });
  parses_or_refuses([&] {
    const double value = describe::parse_real(text, -1e6, 1e6);
    require(std::isfinite(value) && value >= -1e6 && value <= 1e6);
  });
  parses_or_refuses([&] { require(describe::parse_bytes(text) >= 0); });
  parses_or_refuses([&] { (void)describe::parse_boolean(text); });
  return 0;
}
