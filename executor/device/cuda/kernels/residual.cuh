#pragma once

#include "executor/device/cuda/checks.hpp"
#include "executor/device/cuda/kernels/dropout.cuh"

namespace zeroplan::executor::cuda {

// residual_add: out = residual + branch, where the branch has its bias added, and is dropped by a mask on the way where there
// is one.
struct Addition {
  Reals branch, bias, residual, out;
  std::uint8_t* mask = nullptr;
  const float* scalars = nullptr;
  bool aligned_bias = false;
  Dropout dropout;

  template <class Function>
  Addition translated(const Function& function) const {
    Addition other = *this;
    for (Reals Addition::*reals : {&Addition::branch, &Addition::bias, &Addition::residual, &Addition::out})
      other.*reals = (this->*reals).translated(function);
    other.mask = function(mask);
    other.scalars = function(scalars);
    return other;
  }

  template <bool kVectors>
  struct FetchedTerms {
    Fetched<kVectors> branch, residual;
  };
  template <bool kVectors>
  __device__ __forceinline__ FetchedTerms<kVectors> fetch_terms(Index offset,
                                                                const Eight<kVectors>& at) const {
    return {fetch(branch, offset, at), fetch(residual, offset, at)};
  }
  // Writes the sum and the mask.
  template <bool kVectors>
  __device__ __forceinline__ void finish(const FetchedTerms<kVectors>& terms, Index offset,
                                         const Eight<kVectors>& at, float (&sum)[kEight]) const {
    float before[kEight];
    float shift[kEight] = {};
    if (bias.data != nullptr) read_parameters(bias, aligned_bias, 0, at, shift);
    unpack(terms.branch, branch, sum);
    unpack(terms.residual, residual, before);
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i) sum[i] += shift[i];
    if (mask != nullptr) {
      const unsigned kept = draw<false>(dropout, step_of(scalars), offset, at);
      drop(kept, dropout.scale(), sum);
      write_mask(mask, offset, at, kept);
    }
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i) sum[i] += before[i];
    write(out, offset, at, sum);
  }
};

inline Addition addition_of(const Kernel& kernel) {
  const auto& [branch, bias, residual, mask, out, none] = kernel.operands;
  if (mask && !kernel.scalars) refuse(kernel, "the scalars with the step's number are missing");
  if (kernel.mask.numbers.part != 0) refuse(kernel, "a mask that ranks divide is dropout_forward's");
  return {.branch = reals(branch),
          .bias = reals(bias),
          .residual = reals(residual),
          .out = reals(out),
          .mask = reinterpret_cast<std::uint8_t*>(mask.data),
          .scalars = reinterpret_cast<const float*>(kernel.scalars.data),
          .aligned_bias = is_aligned(bias),
          .dropout = Dropout(kernel.mask, settings_of(kernel).dropout)};
}
// Whether rows of so many elements take 16-byte accesses.
inline bool takes_vectors(const Kernel& kernel, Index hidden) {
  const auto& [branch, bias, residual, mask, out, none] = kernel.operands;
  return hidden % kEight == 0 && are_aligned(branch, residual, out, mask) &&
         kernel.mask.numbers.are_in_fours();
}

}  // namespace zeroplan::executor::cuda
