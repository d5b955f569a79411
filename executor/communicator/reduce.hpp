#pragma once

#include <span>

#include "executor/communicator/communicator.hpp"

namespace zeroplan::executor {

// Reduces `elements` of every source in the order of `sources` and writes the result to every destination:
// ((s0 + s1) + s2) + ... in fp32, rounded once where the type has 16 bits. A maximum with a NaN is a NaN.
// Every element is read from all sources before it is written, so a destination may be one of the sources.
// One source is copied as it is. Returns how many elements it read from each source and wrote to each
// destination. Requires fp32, fp16 or bf16, at least one source and one destination.
Elements reduce_in_order(std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
                         program::DataType type, Elements elements, Reduction reduction);

}  // namespace zeroplan::executor
