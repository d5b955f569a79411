#pragma once

#include <cstdint>
#include <string_view>

#include "executor/host_device.hpp"
#include "executor/philox.hpp"
#include "executor/random.hpp"

// Which elements dropout keeps (Srivastava et al., JMLR 15, 2014): drawn for each element from its number in the mask,
// the step, and a key of the run and the mask. So a mask that is made a second time is the same, and so are those of all
// devices. A mask is one of the whole step: its elements are numbered through the micro-batches of all data-parallel ranks
// and the heads of all tensor-parallel ranks, as the sequences of a step are. So a run draws the same masks however it is
// divided over ranks and micro-batches.
namespace zeroplan::executor {

// Of a mask that the program has in each layer under this name.
constexpr std::uint64_t dropout_key(std::uint64_t seed, std::string_view mask, std::int64_t layer) {
  return mix(mix(mix(seed) ^ hash_of(mask)) ^ static_cast<std::uint64_t>(layer));
}

// What the elements that an instruction draws are in the mask of the whole step.
struct MaskNumbers {
  std::uint64_t first = 0;
  // Where ranks divide the mask: so many follow each other of every `whole`. 0: all follow each other.
  std::uint64_t part = 0, whole = 0;

  ZEROPLAN_HOST_DEVICE std::uint64_t of(std::uint64_t element) const {
    return first + (part == 0 ? element : element / part * whole + element % part);
  }
  // How many numbers follow each other from an element on.
  std::uint64_t following(std::uint64_t element) const {
    return part == 0 ? ~std::uint64_t{0} : part - element % part;
  }
  // Whether eight elements from a multiple of eight on are two fours of the generator.
  bool are_in_fours() const { return first % 4 == 0 && part % 8 == 0 && whole % 4 == 0; }

  bool operator==(const MaskNumbers&) const = default;
};

struct DrawnMask {
  std::uint64_t key = 0;
  MaskNumbers numbers;

  bool operator==(const DrawnMask&) const = default;
};

class Dropout {
 public:
  // `dropped`: the share of the elements that become 0, at least 0 and below 1.
  Dropout(const DrawnMask& mask, float dropped)
      : key_{{static_cast<std::uint32_t>(mask.key), static_cast<std::uint32_t>(mask.key >> 32U)}},
        numbers_(mask.numbers),
        lowest_kept_(static_cast<std::uint32_t>(static_cast<double>(dropped) * 4294967296.0)),
        scale_(1.0F / (1.0F - dropped)) {}

  template <bool kDivided>
  ZEROPLAN_HOST_DEVICE std::uint64_t number_of(std::uint64_t element) const {
    return kDivided ? numbers_.of(element) : numbers_.first + element;
  }

  // Bit i: whether the element with the number 4 four + i stays.
  ZEROPLAN_HOST_DEVICE unsigned kept_of_four(std::uint64_t four, std::uint32_t step) const {
    const PhiloxWords drawn =
        philox({{static_cast<std::uint32_t>(four), static_cast<std::uint32_t>(four >> 32U), step, 0}}, key_);
    unsigned kept = 0;
    for (unsigned i = 0; i < 4;
         ++i) {  // of `kept |= (... ? 1 : 0) << i` GCC 12 with -fsanitize=undefined makes other code
      if (drawn.word[i] >= lowest_kept_) kept |= 1U << i;
    }
    return kept;
  }

  // What stays is multiplied with it, so that the expectation is unchanged.
  ZEROPLAN_HOST_DEVICE float scale() const { return scale_; }

 private:
  PhiloxKey key_;
  MaskNumbers numbers_;
  std::uint32_t lowest_kept_;
  float scale_;
};

}  // namespace zeroplan::executor
