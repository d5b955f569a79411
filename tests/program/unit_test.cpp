#include "planner/program/unit.hpp"

#include <doctest/doctest.h>

#include "tests/support/plans.hpp"

using namespace zeroplan;
using namespace zeroplan::program;

namespace {

describe::Model gpt() { return describe::read_model_spelling("layers=3,hidden=8,heads=4,vocab=30,ffn=20"); }

describe::Plan over(std::int64_t tensor_parallel) {
  describe::Plan plan = test::plain_plan();
  plan.tensor_parallel = tensor_parallel;
  return plan;
}

const Unit& layer_of(const Units& units) { return units.units.at(1); }

}  // namespace

TEST_CASE("unit: what one of two tensor-parallel ranks holds of a layer, by hand") {
  const Units units = make_units(gpt(), over(2), 1, {});
  REQUIRE(units.units.size() == 3);
  const Unit& layer = layer_of(units);
  CHECK(layer.layers == 3);
  // Query, key, value: 4 of 8 outputs; attention's output and the MLP's second: half of the inputs.
  for (const char* name : {"attention.query.weight", "attention.key.weight", "attention.value.weight"}) {
    const LocalTensor* tensor = layer.find(name);
    REQUIRE(tensor != nullptr);
    CHECK(tensor->outputs == 4);
    CHECK(tensor->inputs == 8);
    CHECK(tensor->whole_outputs == 8);
  }
  const LocalTensor* output = layer.find("attention.output.weight");
  REQUIRE(output != nullptr);
  CHECK(output->outputs == 8);
  CHECK(output->inputs == 4);
  CHECK(layer.find("attention.output.bias")->replicated);
  CHECK(layer.find("no such tensor") == nullptr);
  // Matrices 3 x 4 x 8 + 8 x 4 + 10 x 8 + 8 x 10; biases that differ 3 x 4 + 10; alike 8 + 8 and two norms of 2 x 8.
  CHECK(layer.distinct == 96 + 32 + 80 + 80 + 12 + 10);
  CHECK(layer.elements == layer.distinct + 16 + 32);
  // Those that differ between the ranks stand first.
  for (const LocalTensor& tensor : layer.tensors)
    CHECK((tensor.offset < layer.distinct) == !tensor.replicated);
}

TEST_CASE("unit: the vocabulary is padded to the ranks, and its rows past the end are padding") {
  const Units units = make_units(gpt(), over(4), 1, {});
  const LocalTensor* table = units.units.front().find("embedding.token");
  REQUIRE(table != nullptr);
  CHECK(table->outputs == 8);  // 30 over 4
  CHECK(table->whole_outputs == 30);
}

TEST_CASE("unit: partitions are equal, what is owned covers every element once") {
  for (const std::int64_t partitions : {1, 2, 3, 7}) {
    std::vector<Elements> owned(3, 0), distinct(3, 0);
    Units units;
    for (std::int64_t rank = 0; rank < partitions; ++rank) {
      units = make_units(gpt(), over(1), partitions, {rank, 0});
      for (std::size_t u = 0; u < 3; ++u) {
        const Unit& unit = units.units[u];
        CHECK(unit.partition * partitions >= unit.elements);
        CHECK(unit.partition * partitions < unit.elements + partitions);
        owned[u] += unit.owned;
        distinct[u] += unit.owned_distinct;
      }
    }
    for (std::size_t u = 0; u < 3; ++u) {
      CHECK(owned[u] == units.units[u].elements);
      CHECK(distinct[u] == units.units[u].distinct);
    }
  }
}

TEST_CASE("unit: replicas own what the ranks of the first shard own") {
  for (const std::int64_t rank : {0, 1, 2, 3}) {
    const Units first = make_units(gpt(), over(1), 4, {rank, 0});
    const Units replica = make_units(gpt(), over(1), 4, {rank + 8, 0});
    for (std::size_t u = 0; u < 3; ++u) CHECK(first.units[u].owned == replica.units[u].owned);
  }
}
