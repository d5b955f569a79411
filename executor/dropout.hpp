#pragma once

#include <cstdint>

#include "executor/host_device.hpp"
#include "executor/philox.hpp"
#include "executor/random.hpp"

// Which elements dropout keeps (Srivastava et al., JMLR 15, 2014): drawn for each element from its number in the mask,
// the step, and a key of the run, the mask and the micro-batch. So a mask that is made a second time is the same, and
// so are those of all devices.
namespace zeroplan::executor {

// `place` is the mask's among all of the model.
constexpr std::uint64_t dropout_key(std::uint64_t seed, std::uint64_t place, std::uint64_t micro_batch) {
  return mix(mix(mix(seed) ^ place) ^ micro_batch);
}

class Dropout {
 public:
  // `dropped`: the share of the elements that become 0, at least 0 and below 1.
  Dropout(std::uint64_t key, float dropped)
      : key_{{static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32U)}},
        lowest_kept_(static_cast<std::uint32_t>(static_cast<double>(dropped) * 4294967296.0)),
        scale_(1.0F / (1.0F - dropped)) {}

  // Bit i: whether element 4 four + i stays.
  ZEROPLAN_HOST_DEVICE unsigned kept_of_four(std::uint64_t four, std::uint32_t step) const {
    const PhiloxWords drawn =
        philox({{static_cast<std::uint32_t>(four), static_cast<std::uint32_t>(four >> 32U), step, 0}}, key_);
    unsigned kept = 0;
    for (unsigned i = 0; i < 4; ++i) kept |= (drawn.word[i] >= lowest_kept_ ? 1U : 0U) << i;
    return kept;
  }

  // What stays is multiplied with it, so that the expectation is unchanged.
  ZEROPLAN_HOST_DEVICE float scale() const { return scale_; }

 private:
  PhiloxKey key_;
  std::uint32_t lowest_kept_;
  float scale_;
};

}  // namespace zeroplan::executor
