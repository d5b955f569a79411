#include <doctest/doctest.h>

#include <optional>
#include <string>

#include "planner/program/compile.hpp"
#include "planner/program/head.hpp"
#include "planner/program/layer_stack.hpp"
#include "tests/support/plans.hpp"

using namespace zeroplan;
using namespace zeroplan::program;
using describe::Plan;
using describe::Recompute;

namespace {

// The pieces of a compiler over one model and plan, each to be asked for what it emits.
struct Pieces {
  describe::Model model;
  Plan plan;
  StepProgram program;
  Units units;
  Builder builder{program, 1};
  std::optional<ZeroPolicy> zero;
  Shapes shapes;
  MicroBatch batch;

  Pieces(describe::Model of_model, const Plan& of_plan) : model(std::move(of_model)), plan(of_plan) {
    program.groups = compile(model, plan).groups;
    program.layers = model.layers;
    units = make_units(model, plan, partitions_of(plan), {});
    zero.emplace(builder, plan, units.units, model.tied_embeddings);
    shapes = make_shapes(model, plan);
    batch.tokens = builder.buffer("tokens", DataType::int32, Category::workspace, shapes.tokens);
    batch.targets = builder.buffer("targets", DataType::int32, Category::workspace, shapes.tokens);
    batch.scalars = builder.buffer("scalars", DataType::fp32, Category::workspace, kScalars);
  }

  BufferId stream(const char* name) {
    return builder.buffer(name, shapes.compute, Category::activation, shapes.tokens * shapes.hidden);
  }

  // The kernels and collectives that `body` emits; loops as "n x (...)".
  std::string emitted(const std::function<void()>& body) {
    const std::size_t begin = program.code.size();
    body();
    std::string text;
    bool is_first = true;
    for (std::size_t i = begin; i < program.code.size(); ++i) {
      const Instruction& instruction = program.code[i];
      if (is_memory(instruction.op)) continue;
      if (instruction.op == Op::end_repeat) {
        text += ")";
        is_first = false;
        continue;
      }
      if (!is_first) text += " ";
      is_first = instruction.op == Op::repeat;
      text += instruction.op == Op::repeat ? std::to_string(instruction.dims[0]) + " x ("
                                           : std::string(name_of(instruction.op));
      if ((instruction.flags & kRecomputed) != 0) text += "'";
    }
    return text;
  }
};

describe::Model gpt(bool tied = true) {
  describe::Model model = describe::read_model_spelling("layers=4,hidden=8,heads=2,vocab=16");
  model.tied_embeddings = tied;
  return model;
}

describe::Model llama() {
  return describe::read_model_spelling(
      "layers=4,hidden=8,heads=2,kv_heads=1,ffn=12,vocab=16,gated=true,tied=false");
}

Plan over(std::int64_t tensor_parallel) {
  Plan plan = test::plain_plan();
  plan.sequence = 4;
  plan.tensor_parallel = tensor_parallel;
  return plan;
}

const std::string kForward =
    "norm_forward matmul attention_forward matmul residual_add norm_forward matmul activation_forward matmul "
    "residual_add";

std::string forward_of(const describe::Model& model, const Plan& plan) {
  Pieces pieces(model, plan);
  Block block(pieces.builder, model, plan, pieces.shapes, pieces.units.units.at(1), {model.layers, 0});
  const BufferId in = pieces.stream("in"), out = pieces.stream("out");
  return pieces.emitted([&] { block.forward(Keep::activations, at(in), at(out)); });
}

}  // namespace

// Radford et al. 2019, Figure 1 of Vaswani et al. with the norm before; Touvron et al. 2023 for LLaMA.
TEST_CASE("block: a layer's kernels in forward are those of GPT-2 and of LLaMA") {
  CHECK(forward_of(gpt(), over(1)) == kForward);
  CHECK(forward_of(llama(), over(1)) ==
        "norm_forward matmul rotary_forward attention_forward matmul residual_add norm_forward matmul "
        "activation_forward "
        "matmul residual_add");
  Plan materialized = over(1);
  materialized.attention = describe::AttentionKernel::materialized;
  materialized.dropout = true;
  // Dropout of a branch is one kernel with the bias and the residual (Megatron-LM's bias_dropout_add).
  CHECK(forward_of(gpt(), materialized) ==
        "norm_forward matmul attention_scores softmax_forward dropout_forward attention_values matmul "
        "residual_add "
        "norm_forward matmul activation_forward matmul residual_add");
}

// Megatron-LM (arXiv 1909.08053, Section 3): one all-reduce after attention and one after the MLP; in backward one for
// each of their inputs.
TEST_CASE("block: two all-reduces forward and two backward over tensor-parallel ranks") {
  CHECK(forward_of(gpt(), over(2)) ==
        "norm_forward matmul attention_forward matmul all_reduce residual_add norm_forward matmul "
        "activation_forward matmul "
        "all_reduce residual_add");
  const describe::Model model = gpt();
  Pieces pieces(model, over(2));
  Block block(pieces.builder, model, pieces.plan, pieces.shapes, pieces.units.units.at(1), {model.layers, 0});
  const BufferId in = pieces.stream("in"), gradient = pieces.stream("gradient");
  const std::string backward = pieces.emitted([&] { block.backward(at(in), at(gradient)); });
  std::size_t sums = 0;
  for (std::size_t at = backward.find("all_reduce"); at != std::string::npos;
       at = backward.find("all_reduce", at + 1))
    ++sums;
  CHECK(sums == 2);
}

TEST_CASE(
    "embedding: a look-up, summed over the ranks that divide the vocabulary; backward adds to its rows") {
  const describe::Model model = gpt();
  for (const std::int64_t ranks : {1, 2}) {
    Pieces pieces(model, over(ranks));
    Embedding embedding(pieces.builder, *pieces.zero, pieces.shapes, pieces.units.units.front());
    const BufferId out = pieces.stream("out");
    CHECK(pieces.emitted([&] { embedding.forward(pieces.batch, at(out)); }) ==
          (ranks == 1 ? "embedding_forward" : "embedding_forward all_reduce"));
    CHECK(pieces.emitted([&] { embedding.backward(pieces.batch, at(out), true); }) == "embedding_backward");
  }
}

// Megatron-LM, Section 3: only a maximum, a sum and the target's logit of each token cross the ranks.
TEST_CASE("head: the cross-entropy over a divided vocabulary takes two small all-reduces") {
  const describe::Model model = gpt();
  for (const std::int64_t ranks : {1, 2}) {
    Pieces pieces(model, over(ranks));
    Embedding embedding(pieces.builder, *pieces.zero, pieces.shapes, pieces.units.units.front());
    Head head(pieces.builder, *pieces.zero, model, pieces.plan, pieces.shapes, pieces.units.units.back(),
              &pieces.units.units.front(), embedding);
    const BufferId in = pieces.stream("in");
    CHECK(pieces.emitted([&] { head.forward(pieces.batch, at(in)); }) ==
          (ranks == 1
               ? "norm_forward matmul cross_entropy_maximum cross_entropy_exponent cross_entropy_loss"
               : "norm_forward matmul cross_entropy_maximum all_reduce cross_entropy_exponent all_reduce "
                 "cross_entropy_loss"));
  }
}

TEST_CASE("layer stack: forward once, or once more in backward, one layer or one block of layers at a time") {
  const describe::Model model = gpt();
  const auto forward = [&](Recompute recompute, std::int64_t interval, int stage) {
    Plan plan = over(1);
    plan.recompute = recompute;
    plan.checkpoint_interval = interval;
    plan.zero_stage = stage;
    plan.data_parallel = stage > 0 ? 2 : 1;
    Pieces pieces(model, plan);
    LayerStack layers(pieces.builder, *pieces.zero, model, plan, pieces.shapes, pieces.units.units);
    std::string text = pieces.emitted([&] { layers.forward(); });
    const std::string backward = pieces.emitted([&] { layers.backward(true); });
    // A layer's kernels in short; a tick for what is done again.
    const auto shorten = [](std::string whole, const std::string& part, const std::string& with) {
      for (std::size_t at = whole.find(part); at != std::string::npos; at = whole.find(part))
        whole.replace(at, part.size(), with);
      return whole;
    };
    std::string again = kForward;
    for (std::size_t at = again.find(' '); at != std::string::npos; at = again.find(' ', at + 2))
      again.insert(at, "'");
    again += "'";
    return std::pair{shorten(text, kForward, "F"), shorten(backward, again, "F'").substr(0, 12)};
  };
  CHECK(forward(Recompute::none, 1, 0).first == "4 x (F)");
  CHECK(forward(Recompute::none, 1, 0).second.find("F'") == std::string::npos);
  CHECK(forward(Recompute::full, 1, 0).first == "4 x (copy F)");
  CHECK(forward(Recompute::full, 1, 0).second.starts_with("4 x (copy F'"));
  CHECK(forward(Recompute::full, 3, 0).first == "1 x (copy 3 x (F)) 1 x (copy 1 x (F))");
  // Stage 3 gathers a layer ahead: the first before the loop, none in the last layer.
  CHECK(forward(Recompute::none, 1, 3).first == "1 x (all_gather) 3 x (all_gather F) 1 x (F)");
}
