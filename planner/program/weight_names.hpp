#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/describe/model/model.hpp"
#include "planner/units.hpp"

namespace zeroplan::program {

// Where a parameter tensor of ours is among the tensors of a Hugging Face model.
struct NamedWeight {
  std::string name;             // "transformer.h.0.attn.c_attn.weight"
  std::vector<Elements> shape;  // as it is stored: {outputs, inputs}, where `transposed` {inputs, outputs}
  std::string own;              // "attention.query.weight"
  std::int64_t layer = 0;       // of the model; 0 for the embedding and the head
  bool transposed = false;      // GPT-2's Conv1D
  Elements first_output =
      0;  // where ours begins among the stored outputs: query, key and value are one tensor
};

// The names of a whole model. Several weights may be parts of one stored tensor.
struct WeightNames {
  std::vector<NamedWeight> weights;
  std::string prefix;  // of all but the head: files of the model without its head leave it out
  std::string head;    // "lm_head.weight"
  std::string table;   // where the head is tied: the token table it must be equal to; else empty
};

// The layout that transformers gives this model: GPT-2's, or the one that Llama, Mistral and Qwen2 share.
// Nothing for other families and shapes. Source: transformers v4.44, models/gpt2/modeling_gpt2.py and
// models/llama/modeling_llama.py, state_dict of GPT2LMHeadModel and LlamaForCausalLM. Rotary positions of both
// sides turn element i of a head with element i + head_dim / 2, so rows keep their order.
std::optional<WeightNames> huggingface_names(const describe::Model& model, std::int64_t sequence);

// Tensors that files have and that are no parameters: causal masks, rotary frequencies.
bool is_no_parameter(std::string_view name);

}  // namespace zeroplan::program
