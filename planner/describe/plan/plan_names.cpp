#include <algorithm>

#include "planner/describe/plan/plan.hpp"

namespace zeroplan::describe {

std::string_view name_of(Precision value) {
  switch (value) {
    case Precision::fp32:
      return "fp32";
    case Precision::fp16:
      return "fp16";
    case Precision::bf16:
      return "bf16";
  }
  return "";
}

std::string_view name_of(Recompute value) {
  switch (value) {
    case Recompute::none:
      return "none";
    case Recompute::selective:
      return "selective";
    case Recompute::full:
      return "full";
  }
  return "";
}

std::string_view name_of(AttentionKernel value) {
  switch (value) {
    case AttentionKernel::flash:
      return "flash";
    case AttentionKernel::materialized:
      return "materialized";
    case AttentionKernel::materialized_fp32:
      return "materialized_fp32";
  }
  return "";
}

std::string_view name_of(Offload value) {
  switch (value) {
    case Offload::none:
      return "none";
    case Offload::optimizer:
      return "optimizer";
    case Offload::all:
      return "all";
  }
  return "";
}

std::string option_name(std::string_view key) {
  std::string result = "--" + std::string(key);
  std::replace(result.begin() + 2, result.end(), '_', '-');
  return result;
}

Bytes gradient_bytes(const Engine& engine, Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return 4;
    case Precision::fp16:
      return engine.fp32_gradients_with_fp16 ? 4 : 2;
    case Precision::bf16:
      return engine.fp32_gradients_with_bf16 ? 4 : 2;
  }
  return 4;
}

}  // namespace zeroplan::describe
