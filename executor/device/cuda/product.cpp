#include "executor/device/cuda/product.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "executor/device/cuda/kernels/bias.hpp"
#include "executor/device/cuda/kernels/column_sums.hpp"
#include "executor/error.hpp"

namespace zeroplan::executor::cuda {

using program::DataType;

namespace {

cudaDataType type_of(DataType type) {
  switch (type) {
    case DataType::fp16:
      return CUDA_R_16F;
    case DataType::bf16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

std::string text_of(std::string_view name, const Product& product) {
  std::string text =
      fmt::format("{}: product of {} x {} x {}", name, product.rows, product.columns, product.depth);
  if (product.batches != 1) text += fmt::format(", {} times", product.batches);
  return text + fmt::format(", {} to {}{}", program::name_of(product.factors),
                            program::name_of(product.result), product.has_bias ? " with a bias" : "");
}

void check(cublasStatus_t status, std::string_view name, const Product& product, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(
      fmt::format("{}: cuBLASLt {}: {}", text_of(name, product), what, cublasLtGetStatusName(status)));
}

std::uint32_t alignment_of(const std::byte* pointer) {
  constexpr std::uint64_t kMost = 256;  // what cuBLASLt takes for granted where it is not told
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  return static_cast<std::uint32_t>(std::uint64_t{1} << std::countr_zero(address | kMost));
}

std::uint32_t epilogue_of(const Product& product) {
  if (product.has_gelu)
    return product.has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  return product.has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

template <class Value, class Object, class Attribute>
void set(cublasStatus_t (*setter)(Object, Attribute, const void*, std::size_t), Object object,
         Attribute attribute, Value value, std::string_view name, const Product& product) {
  check(setter(object, attribute, &value, sizeof value), name, product, "does not take an attribute");
}

}  // namespace

Bytes Products::workspace_bytes(int compute_capability) {
  constexpr Bytes kMiB = Bytes{1} << 20;
  return compute_capability >= 90 ? 32 * kMiB : 4 * kMiB;
}

Products::Products() {
  cublasLtHandle_t library = nullptr;
  const cublasStatus_t status = cublasLtCreate(&library);
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw DeviceError(fmt::format("cuBLASLt does not start: {}", cublasLtGetStatusName(status)));
  }
  library_.reset(library);
}

Products::Plan Products::make_plan(std::string_view name, const Product& product,
                                   const Alignments& alignments, const Operands& operands,
                                   Bytes workspace_bytes) const {
  const auto checked = [&](cublasStatus_t status, std::string_view what) {
    check(status, name, product, what);
  };
  Plan plan;
  cublasLtMatmulDesc_t description = nullptr;
  checked(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F), "makes no description");
  plan.description.reset(description);
  const auto describe = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    set(cublasLtMatmulDescSetAttribute, description, attribute, value, name, product);
  };
  describe(CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t{product.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N});
  describe(CUBLASLT_MATMUL_DESC_TRANSB, std::int32_t{product.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N});
  describe(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(product));
  if (product.has_bias) {
    describe(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, std::int32_t{type_of(product.result)});
    describe(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  }
  if (product.has_gelu) {
    describe(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.before_gelu);
    describe(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, product.d_leading);
  }

  const auto lay_out = [&](DataType type, std::int64_t rows, std::int64_t columns, bool transposed,
                           std::int64_t leading, std::int64_t stride) {
    if (transposed) std::swap(rows, columns);
    cublasLtMatrixLayout_t made = nullptr;
    checked(cublasLtMatrixLayoutCreate(&made, type_of(type), static_cast<std::uint64_t>(rows),
                                       static_cast<std::uint64_t>(columns), leading),
            "makes no layout");
    Layout layout(made);
    if (product.batches != 1) {
      set(cublasLtMatrixLayoutSetAttribute, made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
          static_cast<std::int32_t>(product.batches), name, product);
      set(cublasLtMatrixLayoutSetAttribute, made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride, name,
          product);
    }
    return layout;
  };
  plan.a = lay_out(product.factors, product.rows, product.depth, product.a_transposed, product.a_leading,
                   product.a_stride);
  plan.b = lay_out(product.factors, product.depth, product.columns, product.b_transposed, product.b_leading,
                   product.b_stride);
  plan.d = lay_out(product.result, product.rows, product.columns, false, product.d_leading, product.d_stride);

  cublasLtMatmulPreference_t made = nullptr;
  checked(cublasLtMatmulPreferenceCreate(&made), "makes no preference");
  const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroy<cublasLtMatmulPreferenceDestroy>>
      preference(made);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    set(cublasLtMatmulPreferenceSetAttribute, made, attribute, value, name, product);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_bytes));
  // Where the depth is divided, its parts are added in fp32 and not in a 16-bit result.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments[0]);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments[1]);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments[2]);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments[2]);

  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  plan.found = cublasLtMatmulAlgoGetHeuristic(library_.get(), description, plan.a.get(), plan.b.get(),
                                              plan.d.get(), plan.d.get(), made, 1, &best, &found);
  if (plan.found == CUBLAS_STATUS_SUCCESS) plan.found = found == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : best.state;
  plan.algorithm = best.algo;
  return plan;
}

const Products::Plan& Products::plan_of(std::string_view name, const Product& product,
                                        const Operands& operands, const Launcher& launcher) {
  const Alignments alignments{alignment_of(operands.a), alignment_of(operands.b), alignment_of(operands.d),
                              alignment_of(operands.bias), alignment_of(operands.before_gelu)};
  const Key key{product, alignments};
  auto plan = plans_.find(key);
  if (plan == plans_.end()) {
    plan = plans_.emplace(key, make_plan(name, product, alignments, operands, workspace_bytes(launcher.sm)))
               .first;
  }
  return plan->second;
}

void Products::run(std::string_view name, const Product& product, const Operands& operands, float scale,
                   const Launcher& launcher) {
  const Bytes workspace = workspace_bytes(launcher.sm);
  if (launcher.workspace_bytes < workspace) {
    throw std::logic_error(fmt::format("{}: a workspace of {} bytes, {} are needed", text_of(name, product),
                                       launcher.workspace_bytes, workspace));
  }
  if (product.rows == 0 || product.columns == 0 || product.batches == 0) return;
  const Plan& plan = plan_of(name, product, operands, launcher);
  check(plan.found, name, product, "has no algorithm");
  const auto point = [&](cublasLtMatmulDescAttributes_t attribute, const std::byte* memory) {
    set(cublasLtMatmulDescSetAttribute, plan.description.get(), attribute, memory, name, product);
  };
  if (product.has_bias) point(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  if (product.has_gelu) point(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.before_gelu);
  const float kept = product.adds ? 1 : 0;
  check(
      cublasLtMatmul(library_.get(), plan.description.get(), &scale, operands.a, plan.a.get(), operands.b,
                     plan.b.get(), &kept, operands.d, plan.d.get(), operands.d, plan.d.get(), &plan.algorithm,
                     launcher.workspace, static_cast<std::size_t>(workspace), launcher.stream),
      name, product, "refuses it");
  flops_.fetch_add(static_cast<Flops>(2 * product.rows * product.columns * product.depth * product.batches),
                   std::memory_order_relaxed);
}

// y^T = W x^T, where W {n, k} is stored as its transpose. cuBLASLt has no bias of another type than the result.
std::pair<Product, Products::Operands> Products::product_of(const Kernel& matmul) {
  const auto [m, n, k, unused] = matmul.dims;
  const auto& [x, weight, bias, y, none, nothing] = matmul.operands;
  const bool has_bias = bias && bias.type == y.type;
  return {{.rows = n,
           .columns = m,
           .depth = k,
           .a_transposed = true,
           .a_leading = k,
           .b_leading = k,
           .d_leading = n,
           .factors = x.type,
           .result = y.type,
           .has_bias = has_bias},
          {.a = weight.data, .b = x.data, .bias = has_bias ? bias.data : nullptr, .d = y.data}};
}

void Products::matmul(const Kernel& kernel, const Launcher& launcher) {
  const auto [product, operands] = product_of(kernel);
  run("matmul", product, operands, 1, launcher);
  if (kernel.operands[2] && !product.has_bias) add_bias(kernel, launcher);
}

bool Products::matmul_and_gelu(const Kernel& matmul, const Kernel& activation, const Launcher& launcher) {
  constexpr std::uintptr_t kAlignment = 16;
  constexpr std::int64_t kLeadingUnit = 8;  // of what is before GELU, cublasLt.h
  const std::int64_t n = matmul.dims[1];
  const Tensor& bias = matmul.operands[2];
  const Tensor& before = matmul.operands[3];
  const Tensor& after = activation.operands[1];
  const auto is_aligned = [](const Tensor& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.data) % kAlignment == 0;
  };
  const bool is_it =
      activation.operands[0].data == before.data && activation.dims[0] == matmul.dims[0] &&
      activation.dims[1] == n &&
      static_cast<program::ActivationKind>(activation.extra) == program::ActivationKind::gelu_tanh;
  const bool pays = launcher.sm >= 90 && launcher.sm < 120 && before.type != program::DataType::fp32;
  const bool has_it = after.type == before.type && (!bias || bias.type == before.type) &&
                      n % kLeadingUnit == 0 && is_aligned(before) && is_aligned(after);
  if (!is_it || !pays || !has_it) return false;
  auto [product, operands] = product_of(matmul);
  product.has_gelu = true;
  operands.before_gelu = std::exchange(operands.d, after.data);
  if (plan_of("matmul", product, operands, launcher).found != CUBLAS_STATUS_SUCCESS) return false;
  run("matmul with GELU", product, operands, 1, launcher);
  return true;
}

// dx^T = W^T dy^T
void Products::matmul_input_gradient(const Kernel& kernel, const Launcher& launcher) {
  const auto [m, n, k, unused] = kernel.dims;
  const Tensor& dy = kernel.operands[0];
  const Tensor& weight = kernel.operands[1];
  const Tensor& dx = kernel.operands[2];
  run("matmul_input_gradient",
      {.rows = k,
       .columns = m,
       .depth = n,
       .a_leading = k,
       .b_leading = n,
       .d_leading = k,
       .factors = dy.type,
       .result = dx.type,
       .adds = (kernel.flags & program::kOverwrite) == 0},
      {.a = weight.data, .b = dy.data, .d = dx.data}, 1, launcher);
}

// dW^T = x^T dy, where dy {m, n} is stored as its transpose.
void Products::matmul_weight_gradient(const Kernel& kernel, const Launcher& launcher) {
  const auto [m, n, k, unused] = kernel.dims;
  const Tensor& dy = kernel.operands[0];
  const Tensor& x = kernel.operands[1];
  const Tensor& dw = kernel.operands[2];
  run("matmul_weight_gradient",
      {.rows = k,
       .columns = n,
       .depth = m,
       .b_transposed = true,
       .a_leading = k,
       .b_leading = n,
       .d_leading = k,
       .factors = dy.type,
       .result = dw.type,
       .adds = true},
      {.a = x.data, .b = dy.data, .d = dw.data}, 1, launcher);
  if (const Tensor& db = kernel.operands[3]) add_column_sums(kernel, launcher, dy, m, n, db);
}

}  // namespace zeroplan::executor::cuda
