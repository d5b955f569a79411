#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "executor/device/cpu/cpu_device.hpp"
#include "executor/step_scalars.hpp"
#include "tests/executor/pytorch_support.hpp"

// Training with dropout. Its masks are those that PyTorch was given, drawn by a generator written a second time
// (tests/reference/pytorch/philox.py); a run draws the same ones however it is divided.

using namespace zeroplan;
using namespace zeroplan::executor;
using namespace zeroplan::executor::test;
using describe::AttentionKernel;
using describe::Model;
using describe::Offload;
using describe::Plan;
using describe::Precision;
using describe::Recompute;

namespace {

PytorchReference reference_of(const std::string& name, std::string_view shape) {
  return {describe::read_model_spelling(shape), read_pytorch_vectors(name + ".gradients.txt")};
}

constexpr std::string_view kGpt = "layers=3,hidden=20,heads=4,head_dim=5,ffn=54,vocab=37";
constexpr std::string_view kLlama =
    "layers=2,hidden=32,heads=4,kv_heads=2,head_dim=8,ffn=48,vocab=37,gated=true";

Plan with_dropout(Plan plan, AttentionKernel attention = AttentionKernel::materialized) {
  plan.dropout = true;
  plan.attention = attention;
  return plan;
}

TrainingOptions steps_of(std::int64_t steps) {
  TrainingOptions options;
  options.steps = steps;
  options.settings.clip_norm = 1;
  options.settings.dropout_seed = 5;
  return options;
}

}  // namespace

TEST_CASE("dropout: loss and every gradient are PyTorch's to 1e-5, by every kernel and recomputation") {
  struct Case {
    PytorchReference reference;
    std::vector<AttentionKernel> kernels;
  };
  const std::vector<AttentionKernel> all{AttentionKernel::materialized, AttentionKernel::materialized_fp32};
  // Flash attention has no probabilities in memory, and drops none.
  const std::vector<Case> cases{{reference_of("gpt_dropout", kGpt), all},
                                {reference_of("llama_dropout", kLlama), all},
                                {reference_of("gpt_hidden_dropout", kGpt), {AttentionKernel::flash}}};
  for (const Case& one : cases) {
    CAPTURE(one.reference.model.family);
    double largest = 0;
    for (const AttentionKernel attention : one.kernels) {
      for (const auto recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        for (const std::int64_t interval : {1, 2}) {
          if (interval > 1 && recompute != Recompute::full) continue;
          Plan plan = with_dropout(pytorch_plan({1, 1}, 1), attention);
          plan.recompute = recompute;
          plan.checkpoint_interval = interval;
          CAPTURE(name_of(attention));
          CAPTURE(name_of(recompute));
          CAPTURE(interval);
          largest = std::max(largest, check_pytorch_gradients(one.reference, plan));
        }
      }
    }
    MESSAGE(one.reference.model.family << ": largest relative difference of a gradient " << largest);
  }
}

TEST_CASE("dropout: loss and every gradient are PyTorch's at every stage and degree, with accumulation") {
  for (const PytorchReference& reference :
       {reference_of("gpt_dropout", kGpt), reference_of("llama_dropout", kLlama)}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const std::int64_t tp : {1, 2}) {
        for (const Division division : {Division{2, 1}, Division{2, 3}, Division{3, 1}, Division{1, 6}}) {
          Plan plan = with_dropout(pytorch_plan(division, tp));
          plan.zero_stage = stage;
          CAPTURE(stage);
          CAPTURE(tp);
          CAPTURE(division.ranks);
          CAPTURE(division.accumulation);
          check_pytorch_gradients(reference, plan);
        }
      }
    }
  }
}

TEST_CASE("dropout: losses and norms of four steps are PyTorch's to 1e-5: each has masks of its own") {
  const Model model = describe::read_model_spelling(kGpt);
  const PytorchVectors vectors = read_pytorch_vectors("gpt_dropout.training.txt");
  const std::vector<double>& losses = vectors.at({"losses", 0});
  const std::vector<double>& norms = vectors.at({"gradient_norms", 0});
  for (const std::int64_t ranks : {1, 3}) {
    Plan plan = with_dropout(pytorch_plan({ranks, 2}, 1));
    plan.zero_stage = ranks > 1 ? 3 : 0;
    CAPTURE(ranks);
    WholeModel weights(model, plan);
    TrainingOptions options = pytorch_training_options(vectors);
    options.visit = [&](Rank& rank, std::int64_t step) {
      if (step == options.steps - 1) weights.collect(rank, State::parameter);
    };
    const Training training = train(model, plan, options);
    for (std::size_t i = 0; i < losses.size(); ++i) {
      CHECK(training.losses[i] == doctest::Approx(losses[i]).epsilon(kPytorchTolerance));
      CHECK(training.norms[i] == doctest::Approx(norms[i]).epsilon(kPytorchTolerance));
    }
    largest_pytorch_difference(weights.tensors(), vectors);
  }
}

TEST_CASE("dropout: recomputation, partitioned and offloaded activations, and offload change no bit") {
  const Model model = tiny_gpt();
  Plan plan = with_dropout(fp32_plan());
  plan.data_parallel = 2;
  plan.tensor_parallel = 2;
  plan.zero_stage = 3;
  const Training reference = train(model, plan, steps_of(4));
  const auto same = [&](const Plan& changed) {
    return same_bits(train(model, changed, steps_of(4)).losses, reference.losses);
  };
  Plan other = plan;
  other.dropout = false;
  CHECK(!same(other));
  TrainingOptions seeded = steps_of(4);
  seeded.settings.dropout_seed = 6;
  CHECK(!same_bits(train(model, plan, seeded).losses, reference.losses));

  Plan changed = plan;
  changed.recompute = Recompute::selective;
  CHECK(same(changed));
  changed.recompute = Recompute::full;
  CHECK(same(changed));
  changed.checkpoint_interval = 2;
  CHECK(same(changed));
  changed.partition_activations = true;
  CHECK(same(changed));
  changed.offload_activations = true;
  CHECK(same(changed));
  changed = plan;
  changed.offload = Offload::all;
  CHECK(same(changed));
}

TEST_CASE("dropout: every stage and data-parallel degree has the bits of one rank") {
  for (const auto precision : {Precision::fp32, Precision::bf16}) {
    for (const Model& model : {tiny_gpt(), tiny_llama()}) {
      for (const std::int64_t dp : {2, 3}) {
        Plan plan = with_dropout(fp32_plan());
        plan.precision = precision;
        plan.sequence = 7;
        plan.gradient_accumulation = dp;
        const Training reference = train(model, plan, steps_of(8));
        plan.gradient_accumulation = 1;
        plan.data_parallel = dp;
        std::vector<float> first = reference.losses;
        for (int stage = 0; stage <= 3; ++stage) {
          plan.zero_stage = stage;
          CAPTURE(name_of(precision));
          CAPTURE(model.family);
          CAPTURE(dp);
          CAPTURE(stage);
          const Training training = train(model, plan, steps_of(8));
          // In 16 bits a gradient is rounded where ranks exchange it, and stages have the same bits.
          if (precision != Precision::fp32 && stage == 0) first = training.losses;
          CHECK(same_bits(training.losses, first));
        }
      }
    }
  }
}

TEST_CASE("dropout: losses under tensor parallelism are one rank's to 1e-5") {
  double largest = 0;
  for (const Model& model : {tiny_gpt(), tiny_llama()}) {
    Plan plan = with_dropout(fp32_plan());
    plan.gradient_accumulation = 2;
    const Training reference = train(model, plan, steps_of(20));
    CHECK(reference.losses.back() < reference.losses.front());
    for (const std::int64_t tp : {2, 4}) {
      plan.tensor_parallel = tp;
      const Training training = train(model, plan, steps_of(20));
      CAPTURE(model.family);
      CAPTURE(tp);
      for (std::size_t i = 0; i < reference.losses.size(); ++i) {
        const double expected = reference.losses[i];
        const double difference = std::abs(static_cast<double>(training.losses[i]) - expected) / expected;
        CHECK(difference <= 1e-5);
        largest = std::max(largest, difference);
      }
    }
  }
  MESSAGE("largest relative difference of a loss " << largest);
}

TEST_CASE("dropout: a step along the gradient lowers the loss under the same masks by its squared norm") {
  for (const auto attention : {AttentionKernel::flash, AttentionKernel::materialized}) {
    const Model model = tiny_gpt();
    Plan plan = with_dropout(fp32_plan(), attention);
    plan.optimizer = describe::find_optimizer("sgd");
    const auto two_steps = [&](float learning_rate) {
      TrainingOptions options = steps_of(2);
      options.settings.clip_norm = 0;
      options.settings.learning_rate = learning_rate;
      options.initial = wide_initialization(model.layers, 4);
      options.tokens = same_every_step(learnable_tokens(model.vocabulary));
      options.visit = [](Rank& rank, std::int64_t) { rank.set_steps(0); };  // the first step's masks again
      return train(model, plan, options);
    };
    const Training still = two_steps(0);
    CHECK(still.losses[0] == still.losses[1]);
    const float squared_norm = std::pow(still.norms.front(), 2.0F);
    const float decrease = 4e-3F;
    const std::vector<float> losses = two_steps(decrease / squared_norm).losses;
    CHECK(losses[0] - losses[1] == doctest::Approx(decrease).epsilon(0.02));
  }
}

namespace {

using Mask = std::vector<std::uint8_t>;

// The masks that a run draws, by the ranks' numbers, in the order in which each draws them.
std::map<std::int64_t, std::vector<Mask>> masks_of(const Model& model, const Plan& plan, std::int64_t steps) {
  std::map<std::int64_t, std::vector<Mask>> masks;
  std::mutex mutex;
  TrainingOptions options = steps_of(steps);
  options.device = [&](std::int64_t rank) {
    return hooked_device(make_cpu_device({}), {}, [&, rank](const Kernel& kernel) {
      if (!draws_mask(kernel)) return;
      const auto bytes = kernel.operands[program::drawn_mask(kernel.op)].as<std::uint8_t>();
      const std::lock_guard lock(mutex);
      masks[rank].emplace_back(bytes.begin(), bytes.end());
    });
  };
  train(model, plan, options);
  return masks;
}

double kept(const Mask& mask) { return static_cast<double>(std::count(mask.begin(), mask.end(), 1)); }

// Whether a binomial count is within five standard deviations of what is expected.
bool is_expected(double count, double draws, double probability) {
  return std::abs(count - draws * probability) <= 5 * std::sqrt(draws * probability * (1 - probability));
}

}  // namespace

TEST_CASE(
    "dropout: a run drops the share that is asked for, and no two masks have more in common than chance") {
  const Model model = tiny_gpt();
  const double stays = 0.9;
  Plan plan = with_dropout(fp32_plan());
  plan.data_parallel = 2;
  plan.tensor_parallel = 2;
  plan.gradient_accumulation = 3;
  const std::int64_t steps = 2;
  const auto of_ranks = masks_of(model, plan, steps);
  REQUIRE(of_ranks.size() == 4);
  const auto hidden = static_cast<std::size_t>(plan.micro_batch * plan.sequence * model.hidden);
  // Ranks of a tensor-parallel group have the same masks of the residual stream, and those of their own heads.
  std::set<Mask> masks;
  for (const auto& of_rank : of_ranks) {
    const std::int64_t rank = of_rank.first;
    const std::vector<Mask>& all = of_rank.second;
    // The embedding's, and three of each layer.
    CHECK(all.size() == static_cast<std::size_t>(steps * 3 * (1 + 3 * model.layers)));
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool is_new = masks.insert(all[i]).second;
      CAPTURE(rank);
      CAPTURE(i);
      CHECK(is_new == (rank % 2 == 0 || all[i].size() != hidden));
      if (all[i].size() == hidden && rank % 2 == 1) CHECK(all[i] == of_ranks.at(rank - 1)[i]);
    }
  }
  double count = 0;
  double draws = 0;
  std::size_t pairs = 0;
  for (auto a = masks.begin(); a != masks.end(); ++a) {
    CHECK(is_expected(kept(*a), static_cast<double>(a->size()), stays));
    count += kept(*a);
    draws += static_cast<double>(a->size());
    for (auto b = masks.begin(); b != a; ++b) {
      if (a->size() != b->size()) continue;
      double both = 0;
      for (std::size_t i = 0; i < a->size(); ++i) both += (*a)[i] & (*b)[i];
      CHECK(is_expected(both, static_cast<double>(a->size()), stays * stays));
      ++pairs;
    }
  }
  CHECK(is_expected(count, draws, stays));
  CHECK(pairs > 4000);
  MESSAGE(masks.size() << " masks, " << draws << " elements, of which " << 1 - count / draws
                       << " were dropped");
}

TEST_CASE("dropout: what is computed a second time draws the masks that it drew") {
  const Model model = tiny_gpt();
  Plan plan = with_dropout(fp32_plan());
  plan.gradient_accumulation = 2;
  const std::vector<Mask> once = masks_of(model, plan, 1).at(0);
  const std::set<Mask> masks(once.begin(), once.end());
  CHECK(masks.size() == once.size());
  plan.recompute = Recompute::selective;
  const std::vector<Mask> scores = masks_of(model, plan, 1).at(0);
  CHECK(scores.size() == once.size() + static_cast<std::size_t>(2 * model.layers));
  CHECK(std::set<Mask>(scores.begin(), scores.end()) == masks);
  plan.recompute = Recompute::full;
  const std::vector<Mask> layers = masks_of(model, plan, 1).at(0);
  CHECK(layers.size() == once.size() + static_cast<std::size_t>(2 * 3 * model.layers));
  CHECK(std::set<Mask>(layers.begin(), layers.end()) == masks);
}
