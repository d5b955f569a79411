#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// How wide the vectors are that kernels and processors compute with.
namespace zeroplan::executor::cpu {

enum class VectorLevel : std::uint8_t { sse, avx, avx2, avx512 };

// Of the kernels of a core that OpenBLAS names (openblas_get_corename); nothing for one that is not known here.
std::optional<VectorLevel> level_of_kernels(std::string_view core);

// Of this processor; nothing where it is none of x86.
std::optional<VectorLevel> level_of_processor();

// What to say where the environment (OPENBLAS_CORETYPE, empty where it is not set) makes OpenBLAS use the
// kernels of `core`, which are below what the processor has: the setting may have its reasons, and is kept.
// Empty otherwise.
std::string forced_kernels_note(std::string_view forced, std::string_view core,
                                std::optional<VectorLevel> processor);

}  // namespace zeroplan::executor::cpu
