#include "planner/program/order.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>

#include "planner/instructions/table.hpp"
#include "planner/program/compile.hpp"
#include "tests/support/order_prover.hpp"
#include "tests/support/pipelined.hpp"
#include "tests/support/plans.hpp"

using namespace zeroplan;
using program::Instruction;
using program::Op;
using program::Order;
using program::StepProgram;
using program::Stream;
using test::Placement;
using test::Reuse;

namespace {

std::string text(const test::Conflicts& conflicts) { return fmt::format("{}", fmt::join(conflicts, "; ")); }

void check_ordered(const StepProgram& program) {
  for (const Placement placement : {Placement::stack, Placement::best_fit}) {
    CHECK(text(test::conflicts_by_clocks(program, test::unroll(program, placement))) == "");
  }
}

describe::Plan plan_of(int stage, std::int64_t ranks, const std::string& engine = "native") {
  describe::Plan plan = test::plain_plan();
  plan.zero_stage = stage;
  plan.data_parallel = ranks;
  plan.engine = describe::find_engine(engine);
  plan.bucket_bytes = plan.engine->bucket_bytes;
  plan.overlap = true;
  return plan;
}

bool runs_the_stage(const describe::Engine& engine, int stage) {
  return engine.stages.empty() ||
         std::find(engine.stages.begin(), engine.stages.end(), stage) != engine.stages.end();
}

const std::array<std::string, 6> kEngines{"native",   "fsdp2",   "deepspeed",
                                          "megatron", "pytorch", "llm-foundry"};

// Programs with waits of every kind, small enough for the proof by pairs.
std::vector<std::pair<std::string, StepProgram>> small_programs() {
  std::vector<std::pair<std::string, StepProgram>> programs;
  const auto add = [&](const std::string& name, const describe::Plan& plan, std::int64_t layers = 5) {
    describe::Model model = test::small_gpt();
    model.layers = layers;
    programs.emplace_back(name, program::compile(model, plan));
  };
  for (const int stage : {1, 2, 3}) {
    for (const std::int64_t accumulation : {1, 3}) {
      describe::Plan plan = plan_of(stage, 2);
      plan.gradient_accumulation = accumulation;
      add(fmt::format("stage {} accumulation {}", stage, accumulation), plan);
      plan.offload = describe::Offload::optimizer;
      add(fmt::format("stage {} accumulation {} offload optimizer", stage, accumulation), plan);
    }
    describe::Plan plan = plan_of(stage, 2, "fsdp2");
    plan.tensor_parallel = 2;
    plan.recompute = describe::Recompute::full;
    plan.partition_activations = plan.offload_activations = true;
    add(fmt::format("stage {} P_a+cpu", stage), plan);
    plan.engine = describe::find_engine("megatron");
    add(fmt::format("stage {} P_a+cpu of megatron", stage), plan);
  }
  describe::Plan plan = plan_of(3, 2);
  plan.offload = describe::Offload::all;
  plan.recompute = describe::Recompute::full;
  add("stage 3 offload all", plan);
  plan.data_parallel = 1;
  add("one rank, offload all", plan);
  plan = plan_of(3, 2);
  plan.recompute = describe::Recompute::full;
  plan.checkpoint_interval = 3;
  add("blocks of 3", plan, 8);
  return programs;
}

}  // namespace

TEST_CASE(
    "order: every two executions that touch the same memory are ordered, on the whole grid and all engines") {
  std::size_t programs = 0, with_waits = 0;
  for (const std::string& engine : kEngines) {
    for (const describe::Model& small : {test::small_gpt(), test::small_llama()}) {
      describe::Model model = small;
      model.layers = 12;
      std::size_t plans = 0;
      test::for_each_plan(model, [&](const std::string& name, const describe::Plan& grid) {
        if (engine != "native" && plans++ % 3 != 0) return;
        describe::Plan plan = grid;
        plan.engine = describe::find_engine(engine);
        if (!runs_the_stage(plan.engine, plan.zero_stage)) return;
        plan.overlap = true;
        const StepProgram program = program::compile(model, plan);
        CAPTURE(engine);
        CAPTURE(name);
        check_ordered(program);
        ++programs;
        if (!program.order.waits.empty()) ++with_waits;
      });
    }
  }
  MESSAGE(programs << " programs, " << with_waits << " with waits");
  CHECK(programs >= 1500);
  CHECK(with_waits >= 800);
}

TEST_CASE("order: 500 plans drawn by a seed, with odd depths, rings and accumulation") {
  std::mt19937 random(20261130);
  const auto one_of = [&](auto... values) {
    const std::array<std::common_type_t<decltype(values)...>, sizeof...(values)> all{values...};
    return all[random() % all.size()];
  };
  for (int drawn = 0; drawn < 500; ++drawn) {
    describe::Model model = random() % 2 == 0 ? test::small_gpt() : test::small_llama();
    model.layers = one_of(1, 2, 3, 4, 7, 11, 18, 25);
    model.tied_embeddings = random() % 2 == 0;
    describe::Plan plan = plan_of(one_of(0, 1, 2, 3), one_of(1, 2, 3));
    plan.tensor_parallel = one_of(1, 1, 2, 4);
    plan.engine = describe::find_engine(kEngines[random() % kEngines.size()]);
    plan.engine.edit().prefetch_layers = one_of(0, 1, 2, 3);
    plan.engine.edit().gradient_buckets = one_of(0, 0, 1, 2, 3, 4);
    plan.gradient_accumulation = one_of(1, 2, 3, 5);
    plan.recompute =
        one_of(describe::Recompute::none, describe::Recompute::selective, describe::Recompute::full);
    plan.checkpoint_interval = plan.recompute == describe::Recompute::full ? one_of(1, 1, 2, 3, 4) : 1;
    plan.offload = one_of(describe::Offload::none, describe::Offload::none, describe::Offload::optimizer,
                          describe::Offload::all);
    plan.partition_activations = plan.recompute == describe::Recompute::full && random() % 2 == 0;
    plan.offload_activations = plan.partition_activations && random() % 2 == 0;
    plan.overlap = random() % 4 != 0;
    const StepProgram program = program::compile(model, plan);
    CAPTURE(drawn);
    CAPTURE(model.layers);
    CAPTURE(plan.zero_stage);
    CAPTURE(plan.engine->name);
    CAPTURE(plan.engine->prefetch_layers);
    CAPTURE(plan.engine->gradient_buckets);
    CAPTURE(plan.checkpoint_interval);
    check_ordered(program);
  }
}

TEST_CASE("order: proved a second time by every pair, wherever memory could be used again") {
  for (const auto& named : small_programs()) {
    const StepProgram& program = named.second;
    CAPTURE(named.first);
    const test::Unrolled unrolled = test::unroll(program, Placement::stack);
    CHECK(text(test::conflicts_by_pairs(program, unrolled, Reuse::anywhere)) == "");
  }
}

namespace {

std::string wait_text(const StepProgram& program, std::size_t wait) {
  std::string result;
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    const Order::Mark& mark = program.order.mark(i);
    const std::string name = fmt::format("{} {} on {}", i, program::name_of(program.code[i].op),
                                         program::name_of(program.code[i].stream));
    if (wait >= mark.first_wait && wait < std::size_t{mark.first_wait} + mark.waits)
      result += name + " waits for ";
    if (mark.signals == program.order.waits[wait].event) result += name + ", ";
  }
  return result + fmt::format("age {}", program.order.waits[wait].age);
}

}  // namespace

TEST_CASE("order: no wait is implied by the others") {
  std::size_t removed = 0;
  for (const auto& named : small_programs()) {
    const StepProgram& whole = named.second;
    const test::Unrolled unrolled = test::unroll(whole, Placement::stack);
    for (std::size_t w = 0; w < whole.order.waits.size(); ++w) {
      StepProgram program = whole;
      program.order.waits[w].age = 0xffff;  // older than anything
      const test::Conflicts found = test::conflicts_by_pairs(program, unrolled, Reuse::anywhere);
      const std::string wait = wait_text(whole, w);
      CAPTURE(named.first);
      CAPTURE(wait);
      CHECK(!found.empty());
      ++removed;
    }
  }
  MESSAGE(removed << " waits removed");
  CHECK(removed >= 150);
}

TEST_CASE("order: the waits do not depend on sizes") {
  for (const int stage : {1, 2, 3}) {
    describe::Plan plan = plan_of(stage, 2);
    plan.gradient_accumulation = 3;
    plan.bucket_bytes = 1 << 30;  // a step of one chunk, whatever the size
    const Order small = program::compile(test::small_gpt(), plan).order;
    for (const std::int64_t factor : {2, 7, 64}) {
      describe::Model model = test::small_gpt();
      model.hidden *= factor;
      model.head_dim *= factor;
      model.ffn *= factor;
      plan.micro_batch = factor;
      const Order large = program::compile(model, plan).order;
      CHECK(large.mark_of == small.mark_of);
      REQUIRE(large.waits.size() == small.waits.size());
      for (std::size_t w = 0; w < large.waits.size(); ++w) {
        CHECK(large.waits[w].event == small.waits[w].event);
        CHECK(large.waits[w].age == small.waits[w].age);
      }
    }
  }
}

namespace {

// Whether an instruction of `op` on `stream` waits for one of `other` on `other_stream`.
bool waits(const StepProgram& program, Op op, Stream stream, Op other, Stream other_stream) {
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    if (program.code[i].op != op || program.code[i].stream != stream) continue;
    for (const Order::Wait& wait : program.order.waits_of(i)) {
      for (std::size_t j = 0; j < program.code.size(); ++j) {
        if (program.order.mark(j).signals == wait.event && program.code[j].op == other &&
            program.code[j].stream == other_stream) {
          return true;
        }
      }
    }
  }
  return false;
}

}  // namespace

// What the time of a step took for granted before order was in the program.
TEST_CASE("order: five waits that were missing") {
  describe::Plan plan = plan_of(2, 2);
  const StepProgram stage_2 = program::compile(test::small_gpt(), plan);
  CHECK(waits(stage_2, Op::fill_zero, Stream::compute, Op::accumulate, Stream::communication));

  plan.zero_stage = 3;
  const StepProgram stage_3 = program::compile(test::small_gpt(), plan);
  CHECK(waits(stage_3, Op::norm_forward, Stream::compute, Op::all_gather, Stream::communication));

  plan.zero_stage = 2;
  plan.tensor_parallel = 2;
  plan.engine = describe::find_engine("fsdp2");
  plan.recompute = describe::Recompute::full;
  plan.partition_activations = plan.offload_activations = true;
  const StepProgram checkpoints = program::compile(test::small_gpt(), plan);
  REQUIRE(plan.engine->overlaps_checkpoint_copies);
  CHECK(waits(checkpoints, Op::all_gather, Stream::compute, Op::copy_to_device, Stream::to_device));
  CHECK(waits(checkpoints, Op::residual_add, Stream::compute, Op::copy_to_host, Stream::to_host));

  plan = plan_of(3, 1);
  plan.offload = describe::Offload::all;
  plan.recompute = describe::Recompute::full;
  const StepProgram one_rank = program::compile(test::small_gpt(), plan);
  CHECK(waits(one_rank, Op::norm_forward, Stream::compute, Op::copy_to_device, Stream::to_device));
}

namespace {

// Each with one release moved before the last instruction that uses the memory.
std::vector<StepProgram> with_early_releases(const StepProgram& whole) {
  std::vector<StepProgram> programs;
  const auto root = [&](program::BufferId buffer) {
    return whole.buffers[buffer].parent == program::kNoBuffer ? buffer : whole.buffers[buffer].parent;
  };
  for (std::size_t i = 0; i < whole.code.size() && programs.size() < 3; ++i) {
    if (whole.code[i].op != Op::release) continue;
    const program::BufferId released = whole.code[i].operands[0].buffer;
    for (std::size_t j = i; j-- > 0 && class_of(whole.code[j].op) != program::Class::structure;) {
      const auto& operands = whole.code[j].operands;
      if (!program::is_executed(whole.code[j].op) ||
          std::none_of(operands.begin(), operands.end(), [&](const program::Operand& operand) {
            return operand.buffer != program::kNoBuffer && root(operand.buffer) == released;
          })) {
        continue;
      }
      StepProgram& early = programs.emplace_back(whole);
      const auto rotate = [&](auto& list) {
        std::rotate(list.begin() + static_cast<std::ptrdiff_t>(j),
                    list.begin() + static_cast<std::ptrdiff_t>(i),
                    list.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      };
      rotate(early.code);
      rotate(early.order.mark_of);
      break;
    }
  }
  return programs;
}

}  // namespace

// Programs that are wrong on purpose, of each kind that a compiler could get wrong.
TEST_CASE("order: wrong programs are caught") {
  std::size_t caught = 0;
  const auto check = [&](const StepProgram& program, int steps = 1) {
    bool found = false;
    for (const Placement placement : {Placement::stack, Placement::best_fit}) {
      found = found || !test::conflicts_by_clocks(program, test::unroll(program, placement, steps)).empty();
    }
    CHECK(found);
    if (found) ++caught;
  };
  for (const std::int64_t accumulation : {1, 3}) {
    for (const std::string engine : {"native", "fsdp2"}) {
      for (const int stage : {2, 3}) {
        describe::Plan plan = plan_of(stage, 2, engine);
        plan.gradient_accumulation = accumulation;
        CAPTURE(stage);
        CAPTURE(engine);
        CAPTURE(accumulation);
        const StepProgram whole = program::compile(test::small_gpt(), plan);
        for (std::size_t b = 0; b < whole.buffers.size(); ++b) {
          if (whole.buffers[b].parent != program::kNoBuffer || whole.buffers[b].instances != 2) continue;
          // A ring of one slot less than its waits were found for.
          StepProgram shorter = whole;
          for (program::Buffer& buffer : shorter.buffers) {
            if (&buffer == &shorter.buffers[b] || buffer.parent == b) buffer.instances = 1;
          }
          CAPTURE(whole.buffers[b].name);
          check(shorter);
        }
        for (const StepProgram& early : with_early_releases(whole)) check(early);
        // The waits of a program with longer rings.
        describe::Plan longer = plan;
        longer.engine.edit().prefetch_layers = 2;
        longer.engine.edit().gradient_buckets = 3;
        const StepProgram other = program::compile(test::small_gpt(), longer);
        if (other.code.size() == whole.code.size()) {
          StepProgram mixed = whole;
          mixed.order = other.order;
          check(mixed);
        }
        // The waits of one step, where the next begins before it has ended.
        StepProgram endless = whole;
        for (Instruction& instruction : endless.code) {
          if (instruction.op != Op::wait_for_all) continue;
          instruction.op = Op::phase;
          instruction.dims[0] = static_cast<std::int64_t>(program::Phase::step);
        }
        check(endless, 2);
      }
    }
  }
  MESSAGE(caught << " wrong programs caught");
  CHECK(caught >= 30);
}

TEST_CASE("order: one forward, one backward, with a set of instances for each micro-batch in flight") {
  struct Case {
    std::int64_t micro_batches, depth;
  };
  for (const Case& of : {Case{4, 2}, {7, 3}, {9, 4}, {40, 3}, {41, 3}, {42, 3}}) {
    CAPTURE(of.micro_batches);
    CAPTURE(of.depth);
    StepProgram program = test::pipelined(of.micro_batches, of.depth, of.depth).program;
    program::derive_order(program);
    CHECK(!program.order.waits.empty());
    const test::Unrolled unrolled = test::unroll(program, Placement::best_fit);
    CHECK(unrolled.not_held.empty());
    CHECK(test::conflicts_by_clocks(program, unrolled).empty());
    CHECK(test::conflicts_by_pairs(program, unrolled, Reuse::anywhere).empty());
    for (std::size_t w = 0; w < program.order.waits.size(); ++w) {
      StepProgram without = program;
      without.order.waits[w].age = 0xffff;
      CHECK(!test::conflicts_by_pairs(without, unrolled, Reuse::anywhere).empty());
    }
  }
}
