#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <set>

#include "executor/elements.hpp"
#include "planner/program/compile.hpp"
#include "tests/executor/training_support.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;
using namespace zeroplan::executor::test;
using describe::Model;
using describe::Plan;

// Faults that partitions and buckets of other engines had: padding (1), bucket bookkeeping (7), stale copies
// (13).

namespace {

// Sizes at which divisions by n go wrong.
std::set<Elements> odd_sizes(std::int64_t n) {
  std::set<Elements> sizes = {1, n, n + 1, 2, 3, 5, 7, 11, 13};
  if (n > 1) sizes.insert(n - 1);
  return sizes;
}

// One layer. The head's unit is one RMSNorm of `size` elements, or nothing for size 0; the others are not
// much larger.
Model tiny_model(Elements size) {
  Model model = describe::read_model_spelling(
      fmt::format("layers=1,hidden={},heads=1,head_dim=2,vocab=5,ffn=3,gated=true,tied=true",
                  std::max<Elements>(size, 1)));
  model.final_norm = size > 0;
  return model;
}

Plan tiny_plan(std::int64_t ranks, int stage) {
  Plan plan = fp32_plan();
  plan.sequence = 3;
  plan.micro_batch = 1;
  plan.data_parallel = ranks;
  plan.zero_stage = stage;
  return plan;
}

// NaN wherever a rank holds what belongs to no parameter.
void poison_padding(Rank& rank) {
  constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();
  for (const program::UnitPlacement& unit : rank.program().units) {
    if (unit.elements == 0) continue;
    for (const State state : {State::parameter, State::momentum, State::variance}) {
      const UnitMemory memory = memory_of(rank, unit, state, unit.first_layer);
      for (Elements i = std::max<Elements>(0, unit.elements - memory.first); i < memory.tensor.elements; ++i)
        store_element(memory.tensor, i, kPoison);
    }
  }
}

// Bytes of whole vectors that went through a collective of the data-parallel group.
Bytes reduced_bytes(const Rank& rank, program::Op collective) {
  for (const Ledger::Total& total : rank.data_plane(0).ledger().totals) {
    if (total.kind == kind_of(collective)) return total.bytes;
  }
  return 0;
}

// Sets one weight where `rank` owns it; with `everywhere` in every copy that it holds.
void set_weight(Rank& rank, State state, const ParameterElement& at, float value, bool everywhere) {
  for (const program::TensorPlacement& placement : rank.program().tensors) {
    if (placement.name != at.name) continue;
    const program::UnitPlacement& unit = rank.program().units[placement.unit];
    UnitMemory memory = memory_of(rank, unit, state, at.layer);
    if (everywhere) memory.own_end = memory.first + memory.tensor.elements;
    for_each_element(placement, at.layer, [&](const ParameterElement& element, Elements flat) {
      const bool own = (flat >= memory.own_begin || everywhere) && flat < memory.own_end;
      if (element.output == at.output && element.input == at.input && own)
        store_element(memory.tensor, flat - memory.first, value);
    });
  }
}

}  // namespace

TEST_CASE("fault 1, padding: every element of every unit is owned once, by norm and optimizer too") {
  for (std::int64_t n = 1; n <= 9; ++n) {
    std::set<Elements> sizes = odd_sizes(n);
    sizes.insert(0);
    for (const Elements size : sizes) {
      for (int stage = 0; stage <= 3; ++stage) {
        CAPTURE(n);
        CAPTURE(size);
        CAPTURE(stage);
        std::vector<Elements> next;          // of each unit: the first element that nobody owned so far
        std::vector<Elements> in_norm;       // elements of each unit that the ranks' norms read
        std::vector<Elements> whole_of_one;  // on one rank, where nothing is divided
        for (const program::UnitPlacement& unit : program::compile(tiny_model(size), tiny_plan(1, 0)).units) {
          whole_of_one.push_back(unit.elements);
        }
        CHECK(whole_of_one.back() == size);
        for (std::int64_t rank = 0; rank < n; ++rank) {
          const program::StepProgram program =
              program::compile(tiny_model(size), tiny_plan(n, stage), {rank, 0});
          next.resize(program.units.size());
          in_norm.resize(program.units.size());
          std::size_t norms = 0;
          for (const program::Instruction& instruction : program.code) {
            if (instruction.op == program::Op::gradient_norm) in_norm[norms++] += instruction.dims[0];
          }
          for (std::size_t u = 0; u < program.units.size(); ++u) {
            const program::UnitPlacement& unit = program.units[u];
            if (!unit.is_partitioned()) {
              next[u] = unit.elements;
              CHECK(unit.owned == unit.elements);
              continue;
            }
            if (unit.owned > 0) CHECK(next[u] == rank * unit.partition);
            CHECK(unit.owned <= unit.partition);
            next[u] += unit.owned;
          }
        }
        CHECK(next == whole_of_one);
        const bool divided = stage > 0 && n > 1;
        for (Elements& elements : in_norm) elements /= divided ? 1 : n;
        CHECK(in_norm == whole_of_one);
      }
    }
  }
}

TEST_CASE("fault 1, padding: tiny and uneven shards train as whole ones do, whatever the padding holds") {
  for (std::int64_t n = 1; n <= 9; ++n) {
    for (const Elements size : {Elements{0}, Elements{1}, n - 1, n, n + 1, Elements{7}}) {
      const Model model = tiny_model(size);
      std::vector<std::unique_ptr<WholeModel>> weights;
      std::vector<Training> trainings;
      for (int stage = 0; stage <= 3; ++stage) {
        const Plan plan = tiny_plan(n, stage);
        weights.push_back(std::make_unique<WholeModel>(model, plan));
        TrainingOptions options;
        options.steps = 2;
        options.settings.learning_rate = 0.1F;
        options.settings.weight_decay = 0.1F;
        options.visit = [&](Rank& rank, std::int64_t step) {
          if (step == 0) poison_padding(rank);
          if (step == options.steps) weights.back()->collect(rank, State::parameter);
        };
        trainings.push_back(train(model, plan, options));
      }
      CAPTURE(n);
      CAPTURE(size);
      CHECK(std::isfinite(weights[0]->sum_of_squares()));
      for (std::size_t stage = 1; stage <= 3; ++stage) {
        CAPTURE(stage);
        CHECK(same_bits(trainings[stage].losses, trainings[0].losses));
        CHECK(trainings[stage].norms.back() == doctest::Approx(trainings[0].norms.back()).epsilon(1e-6));
        for (const auto& [name, tensor] : weights[0]->tensors()) {
          CHECK(same_bits(weights[stage]->at(name.name, name.layer).values, tensor.values));
        }
      }
    }
  }
}

TEST_CASE("fault 7, buckets: no size of bucket changes a bit, and every gradient is reduced once") {
  const Model model = tiny_gpt();
  const Bytes one_parameter = 4 * model.ffn * model.hidden;
  const Bytes whole_model = 4 * describe::count_parameters(model, fp32_plan().sequence);
  for (int stage = 0; stage <= 3; ++stage) {
    Plan plan = fp32_plan();
    plan.data_parallel = 3;
    plan.gradient_accumulation = 2;
    plan.zero_stage = stage;
    Elements padded = 0;  // elements of all units, each rounded up to three equal partitions
    for (const describe::ParameterGroup& group : describe::parameter_groups(model, plan.sequence)) {
      padded += group.layers * round_up(group.elements_per_layer(), stage == 0 ? 1 : 3);
    }
    TrainingOptions options;
    options.steps = 3;
    Bytes reduced = 0;
    options.visit = [&](Rank& rank, std::int64_t step) {
      if (rank.program().group(program::GroupKind::data_parallel).rank != 0 || step != options.steps) return;
      reduced = reduced_bytes(rank, stage == 0 ? program::Op::all_reduce : program::Op::reduce_scatter);
    };
    const Training reference = train(model, plan, options);
    for (const Bytes bucket : {Bytes{4}, Bytes{20}, one_parameter - 4, one_parameter, one_parameter + 4,
                               whole_model, 10 * whole_model, Bytes{-1}}) {
      plan.constant_buffers = bucket > 0;
      if (bucket > 0) plan.bucket_bytes = bucket;
      CAPTURE(stage);
      CAPTURE(bucket);
      CHECK(same_bits(train(model, plan, options).losses, reference.losses));
      // Stages 2 and 3 reduce after each micro-batch. Stage 0's all-reduces are the scalars' too.
      const std::int64_t times = options.steps * (stage >= 2 ? plan.gradient_accumulation : 1);
      const Bytes scalars = reduced - times * 4 * padded;
      CHECK(scalars >= 0);
      CHECK(scalars <= (stage == 0 ? options.steps * 4 * program::kScalars : 0));
    }
  }
}

TEST_CASE("fault 13, stale copies: a weight changed by its owner is what every rank computes with next") {
  const Model model = tiny_gpt();
  constexpr float kChanged = 0.75F;
  const ParameterElement changed[] = {
      {.name = "final_norm.weight", .output = 19},
      {.name = "attention.query.bias", .layer = 0, .output = 13},
      {.name = "mlp.down.weight", .layer = 1, .output = 19, .input = 35},
      {.name = "embedding.token", .output = 3, .input = 1},
  };
  for (const auto precision : {describe::Precision::fp32, describe::Precision::bf16}) {
    for (const ParameterElement& element : changed) {
      // Learning rate 0: a step only distributes what the owner has.
      const auto losses = [&](const Plan& plan) {
        TrainingOptions options;
        options.steps = 3;
        options.settings.learning_rate = 0;
        options.tokens = same_every_step(learnable_tokens(model.vocabulary));
        options.visit = [&](Rank& rank, std::int64_t step) {
          if (step != 1) return;
          const State state = precision == describe::Precision::fp32 ? State::parameter : State::master;
          // Without partitions every rank is an owner.
          set_weight(rank, state, element, kChanged, plan.zero_stage == 0);
        };
        return train(model, plan, options).losses;
      };
      Plan plan = fp32_plan();
      plan.precision = precision;
      plan.gradient_accumulation = 3;
      const std::vector<float> reference = losses(plan);
      plan.gradient_accumulation = 1;
      plan.data_parallel = 3;
      for (int stage = 0; stage <= 3; ++stage) {
        plan.zero_stage = stage;
        CAPTURE(stage);
        CAPTURE(element.name);
        CAPTURE(name_of(precision));
        const std::vector<float> ours = losses(plan);
        CHECK(ours[0] == reference[0]);
        CHECK(ours[2] == reference[2]);
        CHECK(ours[2] != ours[0]);
        // Stage 3 gathers before it computes; below it owners hand out parameters at the end of a step.
        if (stage == 3 && precision == describe::Precision::fp32) CHECK(ours[1] == reference[2]);
      }
    }
  }
}
