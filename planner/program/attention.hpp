#pragma once

#include "planner/program/branch.hpp"
#include "planner/program/emit.hpp"
#include "planner/program/unit.hpp"

namespace zeroplan::program {

// The attention half of a layer: norm, query/key/value, scores, values, output projection, residual.
class Attention {
 public:
  Attention(Builder& builder, const describe::Model& model, const describe::Plan& plan, const Shapes& shapes,
            const Unit& unit, Instances instances);

  // out = in + attention(norm(in)). `out` may be `in` when nothing is kept; with `acquire_out` it is acquired
  // here, after everything that is kept.
  void forward(Keep keep, Operand in, Operand out, bool acquire_out);

  // Adds d in to `gradient`, given `dy` = d out (which may be `gradient`); then releases what forward kept.
  void backward(Operand in, Operand dy, Operand gradient) {
    compute_backward(in, dy, gradient);
    release_kept();
  }
  void compute_backward(Operand in, Operand dy, Operand gradient);
  void release_kept() const { kept_.release(); }

 private:
  // Scores kept as matrices: what the un-fused kernels need.
  struct Scores {
    BufferId probabilities = kNoBuffer, mask = kNoBuffer, dropped = kNoBuffer, fp32 = kNoBuffer;
    BufferId gradient = kNoBuffer;
  };

  void declare_latent(const describe::Model& model, Parameters& parameters, Instances instances);
  void project(Scope& scope);
  void project_latent(Scope& scope);
  void project_backward(Operand normed_gradient);
  void project_latent_backward(Operand normed_gradient);
  void attend(Keep keep, Scope& scope);
  void compute_scores();
  void acquire_scores(Scope& scope) const;
  void attend_backward();
  Instruction& emit_attention(Op op, std::initializer_list<Operand> operands);
  void emit_rotary(Op op, Operand heads);
  void emit_head_norms();
  void emit_head_norms_backward();
  BufferId activation(std::string_view name, Elements width, Instances instances);

  Builder& builder_;
  Shapes shapes_;
  bool flash_, recompute_scores_, rotary_, latent_, normed_as_one_;
  std::int64_t rotary_heads_ = 0, rotary_dim_ = 0;
  std::int64_t context_width_ = 0;  // of the attention output: heads x head_dim
  Scope kept_;
  Branch branch_;

  NormParameters norm_, query_norm_, key_norm_, query_down_norm_, key_value_down_norm_;
  Linear packed_linear_, output_, query_down_, query_up_, key_value_down_, key_value_up_;

  // Kept from forward; "packed" is query, key and value of a token side by side.
  BufferId normed_, statistics_, packed_, query_key_, query_key_statistics_, log_sum_exp_, context_;
  BufferId query_latent_ = kNoBuffer, query_latent_normed_ = kNoBuffer, key_value_latent_ = kNoBuffer,
           key_value_latent_normed_ = kNoBuffer, latent_statistics_ = kNoBuffer;
  Scores scores_;
  // Backward only.
  BufferId normed_gradient_, packed_gradient_, context_gradient_, row_dots_;
};

}  // namespace zeroplan::program
