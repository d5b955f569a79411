#include <doctest/doctest.h>

#include <set>

#include "planner/describe/model/model.hpp"
#include "tests/describe/text/csv_table.hpp"

using namespace zeroplan;
using namespace zeroplan::describe;

namespace {

const ParameterTensor* find_tensor(const std::vector<ParameterGroup>& groups, ParameterGroup::Kind kind,
                                   std::string_view name) {
  for (const ParameterGroup& group : groups) {
    if (group.kind != kind) continue;
    for (const ParameterTensor& tensor : group.tensors) {
      if (tensor.name == name) return &tensor;
    }
  }
  return nullptr;
}

Sharding sharding_of(const Model& model, ParameterGroup::Kind kind, std::string_view name) {
  const auto groups = parameter_groups(model);
  const ParameterTensor* tensor = find_tensor(groups, kind, name);
  REQUIRE_MESSAGE(tensor != nullptr, name);
  return tensor->sharding;
}

}  // namespace

// tests/reference/model_configs.csv: shapes and counts of 100 published models with the sources of each row.
TEST_CASE("every preset has the parameters that its row of the reference table computes") {
  const auto rows = testing::read_csv(ZEROPLAN_TEST_DATA "/model_configs.csv");
  REQUIRE(rows.size() == 100);
  for (const auto& row : rows) {
    CAPTURE(row.at("name"));
    const Model model = resolve_model(row.at("name"));
    CHECK(model.name == row.at("name"));
    CHECK(model.huggingface_id == row.at("hf_id"));
    CHECK(count_parameters(model) == std::stoll(row.at("params_formula")));
    if (!row.at("active_params_formula").empty()) {
      CHECK(count_active_parameters(model) == std::stoll(row.at("active_params_formula")));
    }
    REQUIRE(model.published);
    CHECK(model.published->parameters == std::stoll(row.at("params_published")));
    CHECK(model.published->exact == (row.at("published_kind") == "exact"));
    CHECK_FALSE(model.published->source.empty());
  }
}

TEST_CASE("the presets are the rows of the reference table and no others") {
  std::set<std::string> names;
  for (const auto& row : testing::read_csv(ZEROPLAN_TEST_DATA "/model_configs.csv"))
    names.insert(row.at("name"));
  const auto presets = preset_model_names();
  CHECK(std::set<std::string>(presets.begin(), presets.end()) == names);
}

TEST_CASE("the active parameters of a dense model are all of them") {
  const Model model = resolve_model("llama3-8b");
  CHECK(count_active_parameters(model) == count_parameters(model));
}

TEST_CASE("groups come in the order of the forward pass and name every kind of layer") {
  using Kind = ParameterGroup::Kind;
  const auto kinds = [](const Model& model) {
    std::vector<Kind> result;
    for (const ParameterGroup& group : parameter_groups(model)) result.push_back(group.kind);
    return result;
  };
  CHECK(kinds(resolve_model("gpt2")) == std::vector{Kind::embedding, Kind::dense_layer, Kind::head});
  CHECK(kinds(resolve_model("mixtral-8x7b")) == std::vector{Kind::embedding, Kind::expert_layer, Kind::head});
  CHECK(kinds(resolve_model("glm-4.5")) ==
        std::vector{Kind::embedding, Kind::dense_layer, Kind::expert_layer, Kind::head, Kind::extra});
  CHECK(kinds(resolve_model("t5-11b")) ==
        std::vector{Kind::embedding, Kind::encoder_layer, Kind::decoder_layer, Kind::head});
}

TEST_CASE("a GPT-2 block has twelve tensors, in the order of use, and the shapes of the paper") {
  const Model model = resolve_model("gpt2-xl");
  const auto groups = parameter_groups(model);
  REQUIRE(groups.size() == 3);
  const ParameterGroup& block = groups[1];
  CHECK(block.layers == 48);
  std::vector<std::string_view> names;
  for (const ParameterTensor& tensor : block.tensors) names.push_back(tensor.name);
  CHECK(names == std::vector<std::string_view>{
                     "attention_norm.weight", "attention_norm.bias", "attention.query.weight",
                     "attention.query.bias", "attention.key.weight", "attention.key.bias",
                     "attention.value.weight", "attention.value.bias", "attention.output.weight",
                     "attention.output.bias", "mlp_norm.weight", "mlp_norm.bias", "mlp.up.weight",
                     "mlp.up.bias", "mlp.down.weight", "mlp.down.bias"});
  // 12 h^2 + 13 h of a block with biases and two LayerNorms.
  CHECK(block.elements_per_layer() == 12 * 1600 * 1600 + 13 * 1600);
  CHECK(groups[0].elements_per_layer() == (50257 + 1024) * 1600);
  CHECK(groups[2].elements_per_layer() == 2 * 1600);
}

// Shoeybi et al., arXiv 1909.08053, section 3: the first product of a pair is split by columns, the second by
// rows.
TEST_CASE("tensor parallelism splits each tensor as Megatron does") {
  using Kind = ParameterGroup::Kind;
  const Model gpt = resolve_model("gpt2");
  for (const char* name :
       {"attention.query.weight", "attention.query.bias", "mlp.up.weight", "mlp.up.bias"}) {
    CHECK(sharding_of(gpt, Kind::dense_layer, name) == Sharding::column);
  }
  for (const char* name : {"attention.key.weight", "attention.key.bias", "attention.value.weight"}) {
    CHECK(sharding_of(gpt, Kind::dense_layer, name) == Sharding::key_value);
  }
  for (const char* name : {"attention.output.weight", "mlp.down.weight"}) {
    CHECK(sharding_of(gpt, Kind::dense_layer, name) == Sharding::row);
  }
  for (const char* name :
       {"attention.output.bias", "mlp.down.bias", "attention_norm.weight", "mlp_norm.bias"}) {
    CHECK(sharding_of(gpt, Kind::dense_layer, name) == Sharding::replicated);
  }
  CHECK(sharding_of(gpt, Kind::embedding, "embedding.token") == Sharding::vocabulary);
  CHECK(sharding_of(gpt, Kind::embedding, "embedding.position") == Sharding::replicated);
  CHECK(sharding_of(resolve_model("llama2-7b"), Kind::head, "head.weight") == Sharding::vocabulary);
  CHECK(sharding_of(resolve_model("phi-2"), Kind::head, "head.bias") == Sharding::vocabulary);

  const Model lite = resolve_model("deepseek-v2-lite");
  CHECK(sharding_of(lite, Kind::expert_layer, "router.weight") == Sharding::replicated);
  CHECK(sharding_of(lite, Kind::expert_layer, "attention.key_value_down.weight") == Sharding::replicated);
  CHECK(sharding_of(lite, Kind::expert_layer, "attention.key_value_up.weight") == Sharding::column);
  CHECK(sharding_of(lite, Kind::expert_layer, "experts.down.weight") == Sharding::row);
  CHECK(sharding_of(lite, Kind::expert_layer, "shared_expert.gate.weight") == Sharding::column);
}

TEST_CASE("only routed experts are marked as experts, one tensor for all of a layer") {
  const Model model = resolve_model("mixtral-8x7b");
  const auto groups = parameter_groups(model);
  for (const ParameterTensor& tensor : groups[1].tensors) {
    const bool routed = tensor.name.starts_with("experts.");
    CHECK(tensor.expert == routed);
    CHECK(tensor.copies == (routed ? 8 : 1));
  }
}

TEST_CASE("learned positions left open have as many rows as the sequence is long") {
  const Model model = read_model_spelling("layers=2,hidden=64,heads=4,vocab=1000");
  // 12 h^2 + 13 h per block, the tied embedding and the final norm.
  const Elements without = 2 * (12 * 64 * 64 + 13 * 64) + 1000 * 64 + 2 * 64;
  CHECK(count_parameters(model) == without);
  CHECK(count_parameters(model, 512) == without + 512 * 64);
  CHECK(count_active_parameters(model, 512) == without + 512 * 64);
  const Model fixed = resolve_model("gpt2");
  CHECK(count_parameters(fixed, 77) == count_parameters(fixed));
}

TEST_CASE("a parameter count alone is its own answer") {
  const Model model = read_model_spelling("params=7.5B");
  CHECK(count_parameters(model) == 7500000000);
  CHECK(count_active_parameters(model) == 7500000000);
}

TEST_CASE("a gated MLP with biases has one on each of its three matrices") {
  Model model = read_model_spelling("layers=1,hidden=8,heads=2,vocab=16,ffn=24,gated=true,tied=true");
  const Elements plain = count_parameters(model);
  model.biases = Bias::all;
  CHECK(count_parameters(model) == plain + 4 * 8 + 2 * 24 + 8);
}
