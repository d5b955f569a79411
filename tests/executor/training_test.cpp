#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <mutex>

#include "executor/communicator/threads/thread_communicator.hpp"
#include "executor/device/cpu/cpu_device.hpp"
#include "executor/rank.hpp"
#include "planner/predict/memory.hpp"
#include "planner/predict/traffic.hpp"
#include "planner/program/compile.hpp"
#include "tests/support/plans.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;

// Whole training steps of small models with ranks as threads.

namespace {

// The micro-batches of a whole step in one order; each data-parallel rank takes its own.
class SyntheticBatches : public BatchSource {
 public:
  SyntheticBatches(std::int64_t vocabulary, std::int64_t rank, std::int64_t accumulation, std::int64_t ranks)
      : vocabulary_(vocabulary), rank_(rank), accumulation_(accumulation), ranks_(ranks) {}

  void next(std::span<std::int32_t> tokens, std::span<std::int32_t> targets) override {
    const std::int64_t step = count_ / accumulation_;
    const std::int64_t micro_batch = (step * ranks_ + rank_) * accumulation_ + count_ % accumulation_;
    ++count_;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = token(micro_batch, static_cast<std::int64_t>(i));
      targets[i] = token(micro_batch, static_cast<std::int64_t>(i) + 1);
    }
  }

 private:
  // Each token follows from the one before, so there is something to learn.
  std::int32_t token(std::int64_t micro_batch, std::int64_t i) const {
    std::int64_t value = micro_batch * 7919 % vocabulary_;
    for (std::int64_t k = 0; k < i; ++k) value = (value * 5 + 3) % vocabulary_;
    return static_cast<std::int32_t>(value);
  }

  std::int64_t vocabulary_, rank_, accumulation_, ranks_;
  std::int64_t count_ = 0;
};

// The same micro-batch again and again.
class OneBatch : public BatchSource {
 public:
  explicit OneBatch(std::int64_t vocabulary) : vocabulary_(vocabulary) {}
  void next(std::span<std::int32_t> tokens, std::span<std::int32_t> targets) override {
    SyntheticBatches(vocabulary_, 3, 1, 1).next(tokens, targets);
  }

 private:
  std::int64_t vocabulary_;
};

struct Training {
  std::vector<float> losses;
  std::vector<float> norms;
  std::vector<Bytes> high_water;                                    // of each rank
  CategoryBytes at_high_water{};                                    // of rank 0
  std::int64_t data_parallel_bytes = 0, tensor_parallel_bytes = 0;  // rank 0's ledgers
};

Bytes total(const Communicator* communicator) {
  Bytes bytes = 0;
  if (communicator == nullptr) return bytes;
  for (const Ledger::Total& entry : communicator->ledger().totals) bytes += entry.bytes;
  return bytes;
}

Training train(const describe::Model& model, const describe::Plan& plan, std::int64_t steps,
               float clip_norm = 0) {
  Training training;
  training.high_water.resize(static_cast<std::size_t>(plan.devices()));
  std::mutex mutex;
  run_ranks(plan.devices(), ThreadOptions{}, [&](Communicator& world) {
    const program::RankPosition position = position_of(world.rank(), plan.tensor_parallel);
    program::StepProgram program = program::compile(model, plan, position);
    const predict::MemoryProfile memory = predict::read_memory(program);
    Rank rank(std::move(program), {memory.peak, memory.host_peak}, make_cpu_device({}), world);
    rank.initialize(normal_initialization(17, model.layers));
    const Bytes data_before = total(rank.data_parallel());
    const Bytes tensor_before = total(rank.tensor_parallel());
    SyntheticBatches batches(model.vocabulary, position.data_parallel, plan.gradient_accumulation,
                             plan.data_parallel);
    StepSettings settings;
    settings.learning_rate = 3e-3F;
    settings.clip_norm = clip_norm;
    std::vector<float> losses;
    std::vector<float> norms;
    for (std::int64_t step = 0; step < steps; ++step) {
      const StepResult result = rank.step(settings, batches);
      losses.push_back(result.loss);
      norms.push_back(result.gradient_norm);
    }
    const std::scoped_lock lock(mutex);
    training.high_water[static_cast<std::size_t>(world.rank())] = rank.arena().high_water().device;
    if (world.rank() != 0) return;
    training.losses = losses;
    training.norms = norms;
    training.at_high_water = rank.arena().at_high_water();
    training.data_parallel_bytes = total(rank.data_parallel()) - data_before;
    training.tensor_parallel_bytes = total(rank.tensor_parallel()) - tensor_before;
  });
  return training;
}

describe::Plan fp32_plan() {
  describe::Plan plan = test::plain_plan();
  plan.precision = describe::Precision::fp32;
  return plan;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("the loss falls") {
  for (const describe::Model& model : {test::small_gpt(), test::small_llama()}) {
    const Training training = train(model, fp32_plan(), 100, 1);
    CHECK(training.losses.front() == doctest::Approx(std::log(model.vocabulary)).epsilon(0.02));
    CHECK(training.losses.back() < training.losses.front() - 0.4F);
  }
}

TEST_CASE("the whole gradient is the loss's: a small step along it lowers the loss by its squared norm") {
  for (const describe::Model& model : {test::small_gpt(), test::small_llama()}) {
    for (const auto attention : {describe::AttentionKernel::flash, describe::AttentionKernel::materialized}) {
      describe::Plan plan = fp32_plan();
      plan.optimizer = describe::find_optimizer("sgd");
      plan.attention = attention;
      const auto two_steps = [&](float learning_rate) {
        std::pair<StepResult, StepResult> results;
        run_ranks(1, ThreadOptions{}, [&](Communicator& world) {
          program::StepProgram program = program::compile(model, plan);
          const predict::MemoryProfile memory = predict::read_memory(program);
          Rank rank(std::move(program), {memory.peak, memory.host_peak}, make_cpu_device({}), world);
          rank.initialize(normal_initialization(5, model.layers));
          OneBatch batches(model.vocabulary);
          StepSettings settings;
          settings.learning_rate = learning_rate;
          results.first = rank.step(settings, batches);
          results.second = rank.step(settings, batches);
        });
        return results;
      };
      const float squared_norm = std::pow(two_steps(0).first.gradient_norm, 2.0F);
      const float decrease = 4e-3F;
      const auto [before, after] = two_steps(decrease / squared_norm);
      CAPTURE(model.name);
      CHECK(before.loss - after.loss == doctest::Approx(decrease).epsilon(0.02));
    }
  }
}

// Without tying: a tied table's gradient is added to by head and embedding in turn, which accumulation on one
// rank interleaves with the other micro-batches. Without clipping: the norm's partial sums depend on the
// partition.
TEST_CASE("every stage and data-parallel degree gives the bits of one rank with the same micro-batches") {
  for (describe::Model model : {test::small_gpt(), test::small_llama()}) {
    model.tied_embeddings = false;
    for (const std::int64_t ranks : {2, 3, 4}) {
      describe::Plan plan = fp32_plan();
      plan.gradient_accumulation = ranks;
      const Training reference = train(model, plan, 6);
      plan.gradient_accumulation = 1;
      plan.data_parallel = ranks;
      for (int stage = 0; stage <= 3; ++stage) {
        plan.zero_stage = stage;
        CAPTURE(ranks);
        CAPTURE(stage);
        const Training training = train(model, plan, 6);
        CHECK(same_bits(training.losses, reference.losses));
      }
    }
  }
}

TEST_CASE("recomputation, partitioned and offloaded activations, and offload change no bit") {
  const describe::Model model = test::small_llama();
  describe::Plan plan = fp32_plan();
  plan.data_parallel = 2;
  plan.tensor_parallel = 2;
  plan.zero_stage = 3;
  const Training reference = train(model, plan, 4);
  const auto same = [&](const describe::Plan& changed) {
    return same_bits(train(model, changed, 4).losses, reference.losses);
  };
  describe::Plan changed = plan;
  changed.recompute = describe::Recompute::full;
  CHECK(same(changed));
  changed.checkpoint_interval = 2;
  CHECK(same(changed));
  changed.partition_activations = true;
  CHECK(same(changed));
  changed.offload_activations = true;
  CHECK(same(changed));
  changed = plan;
  changed.offload = describe::Offload::all;
  CHECK(same(changed));
  changed.offload = describe::Offload::optimizer;
  CHECK(same(changed));
}

TEST_CASE("tensor parallelism gives the same losses to 1e-5") {
  for (const describe::Model& model : {test::small_gpt(), test::small_llama()}) {
    describe::Plan plan = fp32_plan();
    const Training reference = train(model, plan, 5, 1);
    for (const std::int64_t ranks : {2, 4}) {
      plan.tensor_parallel = ranks;
      const Training training = train(model, plan, 5, 1);
      CAPTURE(ranks);
      for (std::size_t i = 0; i < reference.losses.size(); ++i) {
        CHECK(training.losses[i] == doctest::Approx(reference.losses[i]).epsilon(1e-5));
        CHECK(training.norms[i] == doctest::Approx(reference.norms[i]).epsilon(1e-4));
      }
    }
  }
}

TEST_CASE("planned bytes are allocated bytes and predicted traffic is the ledger's, with difference 0") {
  constexpr int kEvery = 5;  // of the plans, so that the sanitizers get through
  int plans = 0;
  int combinations = 0;
  for (const describe::Model& model : {test::small_gpt(), test::small_llama()}) {
    test::for_each_plan(model, [&](const std::string& name, describe::Plan plan) {
      if (plans++ % kEvery != 0) return;
      plan.dropout = false;
      CAPTURE(name);
      ++combinations;
      const program::StepProgram program = program::compile(model, plan);
      const predict::MemoryProfile memory = predict::read_memory(program);
      const predict::Traffic traffic = predict::read_traffic(program);
      const Training training = train(model, plan, 1);
      for (const Bytes high_water : training.high_water) CHECK(high_water == memory.peak);
      CHECK(training.at_high_water == memory.at_peak);
      double data = 0;
      double tensor = 0;
      for (const predict::TrafficEntry& entry : traffic.entries) {
        (entry.group == program::Group::data_parallel ? data : tensor) += entry.bytes;
      }
      CHECK(static_cast<double>(training.data_parallel_bytes) == data);
      CHECK(static_cast<double>(training.tensor_parallel_bytes) == tensor);
    });
  }
  MESSAGE(combinations << " of " << plans << " plans run");
  CHECK(combinations >= 200);
}
