#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "planner/describe/plan/plan.hpp"
#include "planner/predict/summary.hpp"
#include "planner/predict/verdict.hpp"

namespace zeroplan::solve {

// What a search changes of a plan; the data-parallel degree is what the devices leave.
struct Neighbour {
  int zero_stage = 0;
  std::int64_t nodes = 1;
  std::int64_t tensor_parallel = 1;
  std::int64_t micro_batch = 1;
  std::int64_t gradient_accumulation = 1;
};

// What a search asks of a plan; predict() says the same, and more.
struct Evaluation {
  predict::MemoryNeed memory;
  predict::Verdict verdict = predict::Verdict::does_not_fit;
  predict::StepTime time;                                               // all zero where it is not known
  predict::Work work;                                                   // of a step
  double sent_data_parallel_bytes = 0, sent_tensor_parallel_bytes = 0;  // by a rank in a step
  double to_host_bytes = 0, to_device_bytes = 0;
  std::int64_t tokens_per_step = 0;  // of all ranks

  double tokens_per_second() const {
    return time.is_known() ? static_cast<double>(tokens_per_step) / time.seconds : 0;
  }
};

// Evaluates many plans for one model on one machine. Plans that differ in nothing but how often they accumulate have the
// same sections: what is before the micro-batches, a micro-batch, and what follows. Their summaries are made by the
// compiler and the readers when the first such plan is asked for, and are kept; every other is put together from them.
// So 10,000 plans cost as much as a few hundred, and the others about 0.05 us each (docs/figures.md).
//
// Not for several threads at once.
class Evaluator {
 public:
  // `options`: what all plans share; what a Neighbour says, and degrees and batches that follow from it, it need not.
  // The model is kept by reference. Throws ConfigurationError as resolve_plan() does.
  Evaluator(const describe::Model& model, describe::PlanOptions options, std::string hardware);
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  // What the options alone come to.
  const Neighbour& base() const { return base_; }
  // Empty where a rule for plans is broken; resolve_plan(options_for()) says which.
  std::optional<Evaluation> evaluate(const Neighbour& neighbour);
  // The options that ask for that plan.
  describe::PlanOptions options_for(const Neighbour& neighbour) const;

  std::size_t compiled() const { return compiled_; }  // plans so far that were

 private:
  struct Family;
  struct Key {
    std::int64_t nodes, tensor_parallel, micro_batch;
    int zero_stage;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };

  // Null where a rule is broken.
  const describe::ResolvedPlan* resolve(const Key& key, const Neighbour& neighbour);
  bool is_legal(Family& family, const Key& key, const Neighbour& neighbour);
  void compile(Family& family, const describe::ResolvedPlan& resolved);
  std::optional<Evaluation> in_full(const Neighbour& neighbour);

  const describe::Model& model_;
  describe::PlanOptions options_;
  std::string hardware_;
  Neighbour base_;
  std::unordered_map<Key, Family, KeyHash> families_;
  // Of the last plan that was resolved and compiled.
  std::optional<describe::ResolvedPlan> resolved_;
  Key resolved_key_{};
  program::StepProgram program_;
  predict::Walk walk_;
  std::size_t compiled_ = 0;
};

}  // namespace zeroplan::solve
