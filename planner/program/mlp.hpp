#pragma once

#include "planner/program/branch.hpp"
#include "planner/program/emit.hpp"
#include "planner/program/unit.hpp"

namespace zeroplan::program {

// The MLP half of a layer: norm, one or several two-matrix networks, residual. A dense layer has one network
// over all tokens; an expert layer routes each token to top_k experts (the load is taken as balanced) and may
// have a shared one.
class Mlp {
 public:
  Mlp(Builder& builder, const describe::Model& model, const describe::Plan& plan, const Shapes& shapes,
      const Unit& unit, Instances instances);

  // out = residual + mlp(norm(in)); `out` may be `residual` when nothing is kept.
  void forward(Keep keep, Operand in, Operand residual, Operand out, bool acquire_out);

  // Adds d in to `gradient`, given `dy` = d out (which may be `gradient`); then releases what forward kept.
  void backward(Operand in, Operand dy, Operand gradient) {
    compute_backward(in, dy, gradient);
    release_kept();
  }
  void compute_backward(Operand in, Operand dy, Operand gradient);
  void release_kept() const { kept_.release(); }

 private:
  // up (and gate), activation, down.
  struct Network {
    Linear up, down;
    std::int64_t rows = 0;   // tokens that go through it
    std::int64_t width = 0;  // of the activation, on this rank
    std::uint32_t activation = 0;
    BufferId before = kNoBuffer, after = kNoBuffer;  // kept
    BufferId before_gradient = kNoBuffer, after_gradient = kNoBuffer;
  };

  Network declare_network(const describe::Model& model, Parameters& parameters, std::string_view prefix,
                          std::int64_t rows, Instances instances);
  void declare_experts(const describe::Model& model, Parameters& parameters, Instances instances);
  void network_forward(const Network& network, Scope& scope, Operand x);
  bool is_output_needed() const;
  void dense_backward(Operand dy, Operand normed_gradient);
  Operand activation_backward(const Network& network, Scope& scope, Operand dy);
  void network_backward(const Network& network, Operand dy, Operand x, Operand dx, bool overwrite);
  void experts_forward(Scope& scope);
  void experts_backward(Operand dy, Operand normed_gradient);
  Instruction& emit_routing(Op op, std::initializer_list<Operand> operands);
  BufferId activation(std::string_view name, Elements elements, Instances instances);

  Builder& builder_;
  Shapes shapes_;
  bool experts_;
  std::int64_t expert_count_ = 0, top_k_ = 0;
  Scope kept_;
  Branch branch_;

  NormParameters norm_;
  Network dense_, expert_, shared_;
  Linear router_;

  BufferId normed_, statistics_;
  BufferId router_logits_ = kNoBuffer, routed_ = kNoBuffer, expert_outputs_ = kNoBuffer,
           shared_output_ = kNoBuffer;
  BufferId normed_gradient_, router_gradient_ = kNoBuffer;
};

}  // namespace zeroplan::program
