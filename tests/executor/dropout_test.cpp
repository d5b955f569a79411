#include "executor/dropout.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>

using namespace zeroplan::executor;

// The lines "philox4x32 10" of kat_vectors in the authors' library (github.com/DEShawResearch/random123, tests): counter,
// key, and what comes out.
TEST_CASE("philox: known answers") {
  struct Known {
    PhiloxWords counter;
    PhiloxKey key;
    std::array<std::uint32_t, 4> answer;
  };
  const std::array<Known, 3> all{{
      {{{0, 0, 0, 0}}, {{0, 0}}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
       {{0xffffffff, 0xffffffff}},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
       {{0xa4093822, 0x299f31d0}},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  }};
  for (const Known& known : all) {
    const PhiloxWords drawn = philox(known.counter, known.key);
    for (std::size_t i = 0; i < 4; ++i) CHECK(drawn.word[i] == known.answer[i]);
  }
}

TEST_CASE("dropout: the share that stays is what was asked for, and independent of the step and the key") {
  for (const float dropped : {0.0F, 0.1F, 0.5F, 0.9F}) {
    const double share = 1.0 - static_cast<double>(dropped);
    const Dropout one({dropout_key(1, "mask", 3), {}}, dropped);
    const Dropout other({dropout_key(1, "mask", 4), {}}, dropped);
    constexpr std::uint64_t kFours = 20000;
    double kept = 0;
    double both_steps = 0;
    double both_keys = 0;
    for (std::uint64_t four = 0; four < kFours; ++four) {
      const unsigned first = one.kept_of_four(four, 1);
      for (unsigned i = 0; i < 4; ++i) {
        kept += first >> i & 1U;
        both_steps += (first & one.kept_of_four(four, 2)) >> i & 1U;
        both_keys += (first & other.kept_of_four(four, 1)) >> i & 1U;
      }
    }
    const double count = 4 * kFours;
    // Five standard deviations of a binomial count.
    const auto bound = [&](double p) { return 5 * std::sqrt(count * p * (1 - p)); };
    CHECK(std::fabs(kept - count * share) <= bound(share));
    CHECK(std::fabs(both_steps - count * share * share) <= bound(share * share));
    CHECK(std::fabs(both_keys - count * share * share) <= bound(share * share));
    CHECK(one.scale() == doctest::Approx(1 / share));
  }
}
