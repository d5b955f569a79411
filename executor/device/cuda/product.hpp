#pragma once

#include <cublasLt.h>

#include <array>
#include <atomic>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "executor/device/cuda/launch.hpp"

namespace zeroplan::executor::cuda {

// D = scale op(A) op(B), or that added to D, as cuBLASLt understands it: matrices lie column by column, op(A) is
// rows x depth, op(B) depth x columns, D rows x columns. A row-major matrix is its own transpose here.
struct Product {
  std::int64_t rows = 0, columns = 0, depth = 0;
  bool a_transposed = false, b_transposed = false;
  std::int64_t a_leading = 0, b_leading = 0, d_leading = 0;  // elements from a column to the next
  program::DataType factors = program::DataType::fp32, result = program::DataType::fp32;
  bool adds = false;      // to what is in D
  bool has_bias = false;  // `rows` elements of the result's type, added to each column
  bool has_gelu = false;  // D is GELU (tanh form) of the sum, which is kept beside D, in its layout and type
  std::int64_t batches = 1;  // products of the same shape, whose matrices are so many elements apart
  std::int64_t a_stride = 0, b_stride = 0, d_stride = 0;

  // NOLINTNEXTLINE(modernize-use-nullptr): of the comparison that the compiler makes
  auto operator<=>(const Product&) const = default;
};

// Products of a device by cuBLASLt. Sums are formed in fp32 and rounded once, also where the depth is divided; fp32 factors
// are multiplied as they are, not as TF32. A shape's descriptors and algorithm are kept from its first call on, so later
// calls look them up only and a graph may capture them. One thread calls, with launchers of one stream at a time, whose
// workspace has workspace_bytes() at least.
class Products {
 public:
  // What NVIDIA advises to give cuBLAS (cuBLAS documentation, cublasSetWorkspace): 32 MiB from Hopper on, 4 MiB
  // before. `compute_capability`: 10 major + minor.
  static Bytes workspace_bytes(int compute_capability);

  // On the current device. Throws DeviceError.
  Products();

  // As executor/device/cpu means them; dims {m, n, k}.
  void matmul(const Kernel& kernel, const Launcher& launcher);
  void matmul_input_gradient(const Kernel& kernel, const Launcher& launcher);
  void matmul_weight_gradient(const Kernel& kernel, const Launcher& launcher);
  // matmul, and the activation of its result in the product's epilogue. False, and nothing runs, where cuBLASLt has none for
  // it or a kernel of its own is faster: GELU in its tanh form, of 16-bit results, on sm_90 and sm_100. GELU is then of the
  // sum before it is rounded. (B200 1.2 times as fast, RTX 5090 slower; llm.c pull requests 338 and 591)
  bool matmul_and_gelu(const Kernel& matmul, const Kernel& activation, const Launcher& launcher);

  // Any other. `name` is the instruction's, for messages. Throws DeviceError, with the shape, where cuBLASLt has no algorithm
  // for it or refuses it.
  struct Operands {
    const std::byte* a = nullptr;
    const std::byte* b = nullptr;
    const std::byte* bias = nullptr;
    std::byte* d = nullptr;
    std::byte* before_gelu = nullptr;
  };
  void run(std::string_view name, const Product& product, const Operands& operands, float scale,
           const Launcher& launcher);

  // 2 rows columns depth of every product that was issued. Any thread may ask.
  Flops flops() const { return flops_.load(std::memory_order_relaxed); }
  // Products that ran without a call: those of a graph; negative, of calls that ran nothing.
  void count(Flops flops) { flops_.fetch_add(flops, std::memory_order_relaxed); }

 private:
  template <auto destroy>
  struct Destroy {
    template <class Handle>
    void operator()(Handle* handle) const {
      destroy(handle);
    }
  };
  using Library = std::unique_ptr<cublasLtContext, Destroy<cublasLtDestroy>>;
  using Description = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy<cublasLtMatmulDescDestroy>>;
  using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy<cublasLtMatrixLayoutDestroy>>;
  struct Plan {
    Description description;
    Layout a, b, d;
    cublasLtMatmulAlgo_t algorithm{};
    cublasStatus_t found = CUBLAS_STATUS_NOT_SUPPORTED;  // an algorithm
  };
  // Bytes of a, b, d, the bias and what is before GELU that their addresses are multiples of, up to 256.
  using Alignments = std::array<std::uint32_t, 5>;
  using Key = std::pair<Product, Alignments>;

  Plan make_plan(std::string_view name, const Product& product, const Alignments& alignments,
                 const Operands& operands, Bytes workspace_bytes) const;

  const Plan& plan_of(std::string_view name, const Product& product, const Operands& operands,
                      const Launcher& launcher);
  // Of y = x W^T. The bias where it is in the epilogue.
  static std::pair<Product, Operands> product_of(const Kernel& matmul);

  Library library_;
  std::map<Key, Plan> plans_;
  std::atomic<Flops> flops_ = 0;
};

}  // namespace zeroplan::executor::cuda
