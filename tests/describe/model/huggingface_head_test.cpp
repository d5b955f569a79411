#include <doctest/doctest.h>

#include <string>

#include "planner/predict/prediction.hpp"
#include "tests/describe/plan/plan_support.hpp"

using namespace zeroplan;
using namespace zeroplan::describe;
using zeroplan::testing::contains;
using zeroplan::testing::problems_of;

namespace {

// h = 64, V = 1000, two layers of GPT-NeoX or Llama.
std::string file(const std::string& type, const std::string& more) {
  return "{\"model_type\": \"" + type +
         "\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"vocab_size\": "
         "1000, "
         "\"intermediate_size\": 256" +
         more + "}";
}

Model read(const std::string& text) { return read_huggingface_config(parse_json(text, "config.json")); }

std::string wrong(const std::string& text) {
  return problems_of([&] { read(text); });
}

Elements parameters(const std::string& text) { return count_parameters(read(text)); }

}  // namespace

// transformers/modeling_layers.py: GenericForSequenceClassification has Linear(h, labels, bias=False),
// GenericForTokenClassification Linear(h, labels); num_labels is 2 where the file does not say.
TEST_CASE("a classifier has a row per label instead of a vocabulary, at its head only") {
  const Elements causal = parameters(file("llama", ""));
  const Elements body = causal - 1000 * 64;
  const auto with = [](const std::string& class_name, const std::string& more = "") {
    return file("llama", ", \"architectures\": [\"" + class_name + "\"]" + more);
  };
  CHECK(parameters(with("LlamaForCausalLM")) == causal);
  CHECK(parameters(with("LlamaForSequenceClassification")) == body + 2 * 64);
  CHECK(parameters(with("LlamaForSequenceClassification", ", \"num_labels\": 5")) == body + 5 * 64);
  CHECK(parameters(with("LlamaForSequenceClassification", ", \"id2label\": {\"0\": \"a\"}")) == body + 64);
  CHECK(parameters(with("LlamaForTokenClassification", ", \"num_labels\": 9")) == body + 9 * 64 + 9);
  // A tied embedding stays, and the head is a matrix of its own.
  CHECK(parameters(with("LlamaForSequenceClassification", ", \"tie_word_embeddings\": true")) ==
        body + 2 * 64);
  CHECK(read(with("LlamaForCausalLM")).notes.empty());
  CHECK_FALSE(read(with("LlamaForSequenceClassification")).notes.empty());
}

TEST_CASE("the logits of a classifier are its labels, and tensor parallelism divides no vocabulary there") {
  const Model model =
      read(file("llama", ", \"architectures\": [\"LlamaForSequenceClassification\"], \"num_labels\": 4"));
  for (const std::string tp : {"1", "2"}) {
    CAPTURE(tp);
    const ResolvedPlan plan =
        resolve_plan(zeroplan::testing::options_of("dtype=fp32 engine=native seq=16 micro_batch=3 tp=" + tp),
                     model, "dgx2");
    const predict::Prediction prediction = predict::predict(model, plan.plan, plan.cluster);
    // fp32 logits, and nothing else in fp32: their gradient is written over them.
    const auto logits = static_cast<std::size_t>(program::Category::logits);
    CHECK(prediction.memory().at_peak[logits] <= 3 * 16 * 4 * 4);
  }
}

TEST_CASE("a class that is another network than its model_type says is refused") {
  const auto with = [](const std::string& type, const std::string& class_name) {
    return file(type, ", \"architectures\": [\"" + class_name + "\"]");
  };
  CHECK(contains(wrong(with("llama", "LlamaModel")), "has no output head"));
  CHECK(contains(wrong(with("llama", "LlamaForCausalLMEagle3")), "another network than its model_type"));
  CHECK(contains(wrong(with("llama", "MistralForCausalLM")), "expected LlamaForCausalLM"));
  CHECK(contains(wrong(with("llama", "LlamaForQuestionAnswering")), "not modelled"));
  CHECK(wrong(with("gpt_neox", "GPTNeoXForCausalLM")).empty());
  CHECK(wrong(with("llama", "LLaMAForCausalLM")).empty());  // how the first files of Llama wrote it
}

TEST_CASE("two names of one size must agree") {
  const std::string gpt =
      "{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 2, \"n_head\": 8, \"vocab_size\": 1000";
  CHECK(wrong(gpt + ", \"hidden_size\": 64}").empty());
  CHECK(contains(wrong(gpt + ", \"hidden_size\": 128}"), "found 128 beside n_embd 64"));
}

TEST_CASE("experts may have no shared expert beside them") {
  const auto qwen = [](const std::string& shared) {
    return parameters(file("qwen2_moe",
                           ", \"num_key_value_heads\": 8, \"num_experts\": 4, \"num_experts_per_tok\": 2, "
                           "\"moe_intermediate_size\": 32, \"shared_expert_intermediate_size\": " +
                               shared));
  };
  // Two layers: three matrices of the shared expert, and its gate of one output.
  CHECK(qwen("16") - qwen("0") == 2 * (3 * 16 * 64 + 64));
}
