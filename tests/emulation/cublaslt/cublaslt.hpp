#pragma once

#include <cstdint>
#include <string>

// The emulated cuBLASLt: products by OpenBLAS on fp32 copies, with one rounding, on the emulated streams. It refuses what
// NVIDIA's forbids but may let pass: matrices that overlap, a leading dimension below the rows, addresses less aligned than
// the preference promised, an algorithm that was found for another product, a workspace smaller than the algorithm's, a
// library of another device. An algorithm uses all of the workspace that it was allowed and leaves it full of NaN.
namespace zeroplan::emulation {

// Why the last call of this thread that was refused was.
std::string cublaslt_refusal();
// Libraries, descriptions, layouts and preferences that were made and not destroyed.
std::int64_t cublaslt_objects();
// Whether the heuristic finds algorithms, as it may not for odd shapes. It does until it is told otherwise.
void set_cublaslt_finds_algorithms(bool finds);

}  // namespace zeroplan::emulation
