#include "planner/accuracy/pace.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "planner/predict/kernels.hpp"
#include "planner/predict/time.hpp"

namespace zeroplan::accuracy {
namespace {

using describe::Engine;

constexpr const char* kMegatron = "megatron, megatron-deepspeed, megatron-v1";
constexpr const char* kPyTorch = "deepspeed, fsdp2, llm-foundry, pytorch";

// Deals configurations to folds. Of the first twenty numbers, the one whose smallest fold has the most runs with
// the two large configurations (vtrain-single's widths, a third of all runs each) in different folds.
constexpr int kDeal = 15;

// FNV-1a, and not std::hash, which may differ between libraries.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 14695981039346656037U;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 1099511628211U;
  }
  return hash;
}

// Megatron-DeepSpeed runs Megatron's kernels: for pace the two are one engine.
std::string engine_of(const ModelledRun& run) {
  const std::string& name = run.plan.engine.name;
  return name == "megatron-deepspeed" ? "megatron" : name;
}

}  // namespace

const std::array<PaceConstant, kPaceConstants> kPace{
    {{kMegatron, "matmul_fraction", &Engine::matmul_fraction, 0.9, 1},
     {kMegatron, "kernel_gap_us", &Engine::kernel_gap_us, 40, 1000},
     {kMegatron, "host_issue_us", &Engine::host_issue_us, 109, 1000},
     {kMegatron, "elementwise_factor", &Engine::elementwise_factor, 1.75, 20},
     {kPyTorch, "matmul_fraction", &Engine::matmul_fraction, 0.8, 1},
     {kPyTorch, "attention_fraction", &Engine::attention_fraction, 0.6, 2},
     {kPyTorch, "host_issue_us", &Engine::host_issue_us, 360, 1000},
     {kPyTorch, "elementwise_factor", &Engine::elementwise_factor, 1.5, 20},
     {kPyTorch, "traffic_slowdown", &Engine::traffic_slowdown, 0.2, 1},
     {"Volta", "sustained", nullptr, 0.6, 1},
     {"Hopper", "sustained", nullptr, 0.9, 1}}};

bool applies(const PaceConstant& constant, const ModelledRun& run) {
  if (constant.field == nullptr) return run.cluster.device.architecture == constant.group;
  const std::string names = fmt::format(", {},", constant.group);
  return names.find(fmt::format(" {},", run.plan.engine.name)) != std::string::npos;
}

double step_seconds(const ModelledRun& run, const program::StepProgram& program, const PaceValues& values) {
  describe::Plan plan = run.plan;
  const double shipped = predict::sustained_fraction(run.cluster.device);
  double sustained = shipped;
  for (std::size_t c = 0; c < kPaceConstants; ++c) {
    if (!applies(kPace[c], run)) continue;
    if (kPace[c].field == nullptr) {
      sustained = values[c];
    } else {
      plan.engine.*kPace[c].field = values[c];
    }
  }
  predict::KernelRates rates = predict::kernel_rates(run.cluster.device, plan);
  rates.matmul_flops_per_s *= sustained / shipped;
  return predict::read_step_seconds(program, run.cluster, rates);
}

std::size_t fold_of(const ModelledRun& run) {
  const describe::Model& model = run.model;
  const std::string configuration = fmt::format(
      "split {}: hidden {} ffn {} heads {}, {} x {}, {}", kDeal, model.hidden, model.ffn, model.heads,
      run.cluster.device.name, run.cluster.node ? run.cluster.node->devices : 1, engine_of(run));
  return static_cast<std::size_t>(hash_of(configuration) >> 32U) % kFolds;
}

const PaceValues& pace_without(std::size_t fold) {
  // In the order of kPace; scripts/fit_times prints these lines.
  static constexpr std::array<PaceValues, kFolds> kWithout{{
      {0.828, 43.6, 109, 1.43, 0.873, 0.586, 397, 3.4, 0.162, 0.668, 0.914},
      {0.956, 44.2, 108, 1.68, 0.816, 0.582, 542, 2.65, 0.00674, 0.576, 0.937},
      {0.98, 43.1, 107, 1.94, 0.82, 0.597, 347, 2.83, 0.00141, 0.568, 0.932},
  }};
  return kWithout.at(fold);
}

}  // namespace zeroplan::accuracy
