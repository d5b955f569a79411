#include "planner/solve/evaluator.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "planner/predict/prediction.hpp"
#include "planner/program/compile.hpp"

namespace zeroplan::solve {
namespace {

using describe::PlanOptions;
using predict::Summary;
using program::Op;
using program::SectionKind;
using program::StepProgram;

// Micro-batches of the step whose sections stand for every other: the last may be apart, and the order of a loop is found
// by walking three of its own.
constexpr std::int64_t kLoop = 4;

// The repeat of the micro-batches that are a loop, with its end; both at the program's end where none are.
struct Loop {
  std::size_t begin = 0, end = 0;
  std::int64_t count = 0;
};

Loop loop_of(const StepProgram& program) {
  const std::size_t end = program.code.size();
  for (const program::Section& section : program.sections) {
    if (section.kind != SectionKind::micro_batch) continue;
    const std::size_t repeat = section.begin - std::size_t{1};
    if (program.code[repeat].op != Op::repeat) break;
    return {repeat, section.end + std::size_t{1}, program.code[repeat].dims[0]};
  }
  return {end, end, 0};
}

}  // namespace

// Plans that differ in their accumulation only.
struct Evaluator::Family {
  std::int64_t legal_up_to = 0;  // accumulation
  std::int64_t illegal_from = std::numeric_limits<std::int64_t>::max();
  bool in_full = false;  // nothing is put together: every plan is predicted by itself
  Evaluation outside;    // of a step without the loop over micro-batches, and with the memory of all
  predict::SecondsAlone outside_alone;
  Evaluation body;  // of the loop
  predict::SecondsAlone body_alone;
  std::int64_t outside_loop = 0;  // micro-batches
  predict::SecondsByCount seconds;
};

Evaluator::Evaluator(const describe::Model& model, PlanOptions options, std::string hardware)
    : model_(model), options_(std::move(options)), hardware_(std::move(hardware)) {
  const describe::ResolvedPlan resolved = describe::resolve_plan(options_, model_, hardware_);
  const describe::Plan& plan = resolved.plan;
  base_ = {plan.zero_stage, resolved.cluster.nodes, plan.tensor_parallel, plan.micro_batch,
           plan.gradient_accumulation};
}

Evaluator::~Evaluator() = default;

PlanOptions Evaluator::options_for(const Neighbour& neighbour) const {
  PlanOptions options = options_;
  options.zero = neighbour.zero_stage;
  options.nodes = neighbour.nodes;
  options.tp = neighbour.tensor_parallel;
  options.micro_batch = neighbour.micro_batch;
  options.grad_accum = neighbour.gradient_accumulation;
  options.dp.reset();
  options.gpus.reset();
  options.global_batch.reset();
  return options;
}

std::size_t Evaluator::KeyHash::operator()(const Key& key) const {
  std::uint64_t hash = static_cast<std::uint64_t>(key.nodes) * 0x9e3779b97f4a7c15;
  hash ^= static_cast<std::uint64_t>(key.tensor_parallel) * 0xc2b2ae3d27d4eb4f;
  hash ^= static_cast<std::uint64_t>(key.micro_batch) * 0x165667b19e3779f9;
  hash ^= static_cast<std::uint64_t>(key.zero_stage) * 0xff51afd7ed558ccd;
  return hash ^ hash >> 32;
}

namespace {

void add_traffic(Evaluation& evaluation, const predict::Traffic& traffic) {
  evaluation.sent_data_parallel_bytes += traffic.data_parallel_bytes();
  evaluation.sent_tensor_parallel_bytes += traffic.tensor_parallel_bytes();
  evaluation.to_host_bytes += traffic.to_host_bytes;
  evaluation.to_device_bytes += traffic.to_device_bytes;
}

void repeat_in(Evaluation& evaluation, const Evaluation& body, double count) {
  evaluation.work.append(body.work, count);
  evaluation.sent_data_parallel_bytes += count * body.sent_data_parallel_bytes;
  evaluation.sent_tensor_parallel_bytes += count * body.sent_tensor_parallel_bytes;
  evaluation.to_host_bytes += count * body.to_host_bytes;
  evaluation.to_device_bytes += count * body.to_device_bytes;
}

}  // namespace

void Evaluator::compile(Family& family, const describe::ResolvedPlan& resolved) {
  ++compiled_;
  describe::Plan plan = resolved.plan;
  plan.gradient_accumulation = kLoop;
  program::compile_into(model_, plan, {}, program_);
  std::optional<predict::StepCosts> costs;
  if (!program_.states_only) {
    costs =
        predict::step_costs(program_, resolved.cluster, predict::kernel_rates(resolved.cluster.device, plan));
  }
  const predict::StepCosts* known = costs ? &*costs : nullptr;
  const std::size_t end = program_.code.size();
  const Loop loop = loop_of(program_);
  Summary step = summarize(program_, known, 0, loop.begin);
  Summary body, after;
  if (loop.count > 0) {
    body = summarize(program_, known, loop.begin + 1, loop.end - 1);
    after = summarize(program_, known, loop.end, end);
  }
  family.seconds = walk_.by_count(step.time.delays, body.time.delays, after.time.delays);
  predict::SectionMemory memory = step.memory;
  memory.append(body.memory, loop.count);
  memory.append(after.memory);

  Evaluation& outside = family.outside;
  outside.memory = predict::memory_need(program_, predict::profile_of(program_, {}, memory), model_, plan,
                                        resolved.cluster);
  outside.verdict = predict::verdict_of(outside.memory);
  outside.tokens_per_step = program_.tokens_per_step / plan.gradient_accumulation;
  outside.work = step.work;
  outside.work.append(after.work);
  add_traffic(outside, step.traffic);
  add_traffic(outside, after.traffic);
  family.outside_alone = step.time.alone;
  family.outside_alone.append(after.time.alone);
  family.body.work = body.work;
  add_traffic(family.body, body.traffic);
  family.body_alone = body.time.alone;
  family.outside_loop = plan.gradient_accumulation - loop.count;
  // Ranks that wait for one another do so by what is around the loop, too.
  const bool waits = known != nullptr && !known->waiting.empty();
  family.in_full = loop.count > 0 && (waits || body.memory.device.net != 0 || body.memory.host.net != 0);
}

std::optional<Evaluation> Evaluator::in_full(const Neighbour& neighbour) {
  ++compiled_;
  const describe::ResolvedPlan resolved = describe::resolve_plan(options_for(neighbour), model_, hardware_);
  const predict::Prediction prediction = predict::predict(model_, resolved.plan, resolved.cluster);
  Evaluation evaluation;
  evaluation.memory = prediction.need;
  evaluation.verdict = prediction.verdict;
  evaluation.time = prediction.time;
  evaluation.work = prediction.work();
  add_traffic(evaluation, prediction.traffic());
  evaluation.tokens_per_step = prediction.program().tokens_per_step;
  return evaluation;
}

const describe::ResolvedPlan* Evaluator::resolve(const Key& key, const Neighbour& neighbour) {
  if (resolved_ && key == resolved_key_) {
    resolved_->plan.gradient_accumulation = neighbour.gradient_accumulation;
    Problems problems;
    describe::check_plan(resolved_->plan, model_, problems);
    return problems.empty() ? &*resolved_ : nullptr;
  }
  resolved_.reset();
  try {
    resolved_ = describe::resolve_plan(options_for(neighbour), model_, hardware_);
    resolved_key_ = key;
  } catch (const ConfigurationError&) {
    return nullptr;
  }
  return &*resolved_;
}

bool Evaluator::is_legal(Family& family, const Key& key, const Neighbour& neighbour) {
  if (neighbour.gradient_accumulation <= family.legal_up_to) return true;
  if (neighbour.gradient_accumulation >= family.illegal_from) return false;
  const describe::ResolvedPlan* resolved = resolve(key, neighbour);
  if (resolved == nullptr) {
    family.illegal_from = neighbour.gradient_accumulation;
    return false;
  }
  if (family.legal_up_to == 0) compile(family, *resolved);
  family.legal_up_to = neighbour.gradient_accumulation;
  // Much more is mostly legal too, and spares asking for each.
  Neighbour more = neighbour;
  more.gradient_accumulation = std::max<std::int64_t>(1 << 20, neighbour.gradient_accumulation);
  if (resolve(key, more) != nullptr) family.legal_up_to = more.gradient_accumulation;
  return true;
}

std::optional<Evaluation> Evaluator::evaluate(const Neighbour& neighbour) {
  const std::int64_t accumulation = neighbour.gradient_accumulation;
  const Key key{neighbour.nodes, neighbour.tensor_parallel, neighbour.micro_batch, neighbour.zero_stage};
  Family& family = families_[key];
  if (!is_legal(family, key, neighbour)) return std::nullopt;
  const std::int64_t count = accumulation - family.outside_loop;
  if (family.in_full || !family.seconds.knows(count)) return in_full(neighbour);
  Evaluation evaluation = family.outside;
  repeat_in(evaluation, family.body, static_cast<double>(count));
  evaluation.tokens_per_step *= accumulation;
  predict::SecondsAlone alone = family.outside_alone;
  alone.append(family.body_alone, count);
  evaluation.time = predict::step_time_of(alone, family.seconds.at(count));
  return evaluation;
}

}  // namespace zeroplan::solve
