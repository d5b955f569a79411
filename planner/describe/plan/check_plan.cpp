#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "planner/describe/plan/plan.hpp"
#include "planner/describe/text/nearest_value.hpp"

namespace zeroplan::describe {
namespace {

// Sizes are products of counts; the largest that is taken leaves a factor of two below 2^63.
constexpr double kLargestProduct = 4e18;

void refuse(Problems& problems, std::string_view key, std::string message) {
  problems.add({option_name(key), 0, "", std::move(message)});
}

// A size that the tensor-parallel degree must divide.
struct DividedSize {
  std::int64_t size;
  std::string what;
};

std::vector<DividedSize> divided_sizes(const Model& model) {
  std::vector<DividedSize> sizes = {{model.heads, "attention heads"}, {model.hidden, "hidden"}};
  if (model.experts) {
    sizes.push_back({model.experts->expert_ffn, "expert_ffn"});
    if (model.experts->shared_ffn > 0) sizes.push_back({model.experts->shared_ffn, "shared_ffn"});
  }
  if (!model.experts || model.experts->layers < model.layers) sizes.push_back({model.ffn, "ffn"});
  return sizes;
}

// Key-value heads are divided, or each is held by several ranks. Latent attention has none of its own, and
// where every head has one the rule for heads says it all.
bool kv_heads_fit(const Model& model, std::int64_t tp) {
  if (model.latent || model.kv_heads == 0 || model.kv_heads == model.heads) return true;
  return model.kv_heads % tp == 0 || tp % model.kv_heads == 0;
}

void check_tensor_parallel(const Plan& plan, const Model& model, Problems& problems) {
  const std::int64_t tp = plan.tensor_parallel;
  const std::vector<DividedSize> sizes = divided_sizes(model);
  const auto valid = [&](std::int64_t degree) {
    return kv_heads_fit(model, degree) &&
           std::all_of(sizes.begin(), sizes.end(),
                       [&](const DividedSize& size) { return size.size % degree == 0; });
  };
  if (valid(tp)) return;
  const std::string nearest = nearest_values(tp, model.heads, valid);
  for (const DividedSize& size : sizes) {
    if (size.size % tp == 0) continue;
    refuse(problems, "tp",
           fmt::format("found \"{}\", expected a divisor of {} {} ({} % {} = {}); nearest: {}", tp, size.size,
                       size.what, size.size, tp, size.size % tp, nearest));
  }
  if (!kv_heads_fit(model, tp)) {
    refuse(
        problems, "tp",
        fmt::format("found \"{}\", expected a divisor or a multiple of the {} key-value heads; nearest: {}",
                    tp, model.kv_heads, nearest));
  }
}

void check_sequence(const Plan& plan, const Model& model, Problems& problems) {
  if (model.position != Position::learned || model.position_rows == 0) return;
  const std::int64_t limit =
      model.max_sequence > 0 ? std::min(model.max_sequence, model.position_rows) : model.position_rows;
  if (plan.sequence <= limit) return;
  refuse(problems, "seq",
         fmt::format("found \"{}\", expected at most the {} learned positions of {}; nearest: {}",
                     plan.sequence, limit, model.name, limit));
}

void check_activations(const Plan& plan, const Model& model, Problems& problems) {
  const bool full = plan.recompute == Recompute::full;
  if (plan.checkpoint_interval != 1 && !full) {
    refuse(problems, "checkpoint_interval",
           fmt::format("found \"{}\" with recompute {}, expected recompute full; nearest: 1",
                       plan.checkpoint_interval, name_of(plan.recompute)));
  }
  if (model.is_shape() && plan.checkpoint_interval > model.layers) {
    refuse(problems, "checkpoint_interval",
           fmt::format("found \"{}\", expected at most the {} layers; nearest: {}", plan.checkpoint_interval,
                       model.layers, model.layers));
  }
  if (plan.partition_activations && !full) {
    refuse(problems, "partition_activations",
           fmt::format("found \"on\" with recompute {}, expected recompute full: P_a divides checkpoints",
                       name_of(plan.recompute)));
  }
  if (plan.partition_activations && plan.tensor_parallel == 1) {
    refuse(problems, "partition_activations",
           "found \"on\" with tp 1, expected tp above 1: P_a divides over the tensor-parallel ranks");
  }
  if (plan.offload_activations && !full) {
    refuse(problems, "offload_activations",
           fmt::format("found \"on\" with recompute {}, expected recompute full: checkpoints are moved",
                       name_of(plan.recompute)));
  }
}

void check_offload(const Plan& plan, Problems& problems) {
  if (plan.offload == Offload::all && plan.zero_stage != 3) {
    refuse(problems, "offload",
           fmt::format("found \"all\" with zero {}, expected zero 3: parameters are offloaded as partitions; "
                       "nearest: {}",
                       plan.zero_stage, plan.zero_stage == 0 ? "none" : "optimizer"));
  }
  if (plan.offload == Offload::optimizer && plan.zero_stage == 0) {
    refuse(problems, "offload",
           "found \"optimizer\" with zero 0, expected zero 1 to 3: a partition is offloaded; nearest: none");
  }
}

// The nearest stage that the engine has; of two, the one that shards more.
int nearest_stage(const std::vector<int>& stages, int wanted) {
  int nearest = stages.front();
  for (const int stage : stages) {
    if (std::abs(stage - wanted) <= std::abs(nearest - wanted)) nearest = stage;
  }
  return nearest;
}

void check_stage(const Plan& plan, Problems& problems) {
  const std::vector<int>& stages = plan.engine->stages;
  if (std::find(stages.begin(), stages.end(), plan.zero_stage) != stages.end()) return;
  refuse(problems, "zero",
         fmt::format("found \"{}\", expected a stage that {} has: {}; nearest: {}", plan.zero_stage,
                     plan.engine->name, fmt::join(stages, ", "), nearest_stage(stages, plan.zero_stage)));
}

// The divisor of `whole` that is nearest to `wanted`, from `least` on.
std::int64_t nearest_divisor(std::int64_t whole, std::int64_t wanted, std::int64_t least) {
  std::int64_t nearest = whole;
  for (std::int64_t divisor = least; divisor <= whole; ++divisor) {
    if (whole % divisor == 0 && std::abs(divisor - wanted) < std::abs(nearest - wanted)) nearest = divisor;
  }
  return nearest;
}

// Of the ranks that hold a copy together: they divide the data-parallel ones, and are more than one.
void check_divides(std::string_view key, std::int64_t ranks, const Plan& plan, Problems& problems) {
  if (ranks > 1 && ranks <= plan.data_parallel && plan.data_parallel % ranks == 0) return;
  if (plan.data_parallel == 1) {
    refuse(problems, key,
           fmt::format("found \"{}\", and there is one data-parallel rank, expected none", ranks));
    return;
  }
  refuse(problems, key,
         fmt::format("found \"{}\", expected a divisor above 1 of the {} data-parallel ranks; nearest: {}",
                     ranks, plan.data_parallel, nearest_divisor(plan.data_parallel, ranks, 2)));
}

void check_shard(const Plan& plan, Problems& problems) {
  if (plan.shard == 0) return;
  check_divides("shard", plan.shard, plan, problems);
  if (plan.zero_stage == 0) {
    refuse(
        problems, "shard",
        fmt::format("found \"{}\" with zero 0, expected zero 1 to 3: with 0 nothing is sharded", plan.shard));
    return;
  }
  if (plan.offload != Offload::none) {
    refuse(problems, "shard",
           fmt::format(
               "found \"{}\" with offload {}, which is not modelled yet together, expected one of the two",
               plan.shard, name_of(plan.offload)));
  }
  const std::vector<int>& stages = plan.engine->hybrid_stages;
  if (std::find(stages.begin(), stages.end(), plan.zero_stage) != stages.end()) return;
  refuse(problems, "shard",
         stages.empty()
             ? fmt::format("found \"{}\", and {} has no hybrid sharding", plan.shard, plan.engine->name)
             : fmt::format("found \"{}\" with zero {}, expected a stage that {} shards inside a part of the "
                           "ranks: {}; nearest: zero {}",
                           plan.shard, plan.zero_stage, plan.engine->name, fmt::join(stages, ", "),
                           nearest_stage(stages, plan.zero_stage)));
}

void check_secondary_shard(const Plan& plan, Problems& problems) {
  if (plan.secondary_shard == 0) return;
  const auto refuse_with = [&](std::string_view what, std::string_view expected) {
    refuse(problems, "secondary_shard",
           fmt::format("found \"{}\" with {}, expected {}", plan.secondary_shard, what, expected));
  };
  check_divides("secondary_shard", plan.secondary_shard, plan, problems);
  if (plan.zero_stage != 3) {
    refuse_with(fmt::format("zero {}", plan.zero_stage), "zero 3: backward gathers parameters there only");
  }
  if (plan.shard != 0)
    refuse_with(fmt::format("shard {}", plan.shard), "one of the two: a shard is inside a node already");
  if (plan.offload == Offload::all)
    refuse_with("offload all", "offload none: the second copy is on the device");
  if (!plan.engine->has_secondary_shard) {
    refuse(problems, "secondary_shard",
           fmt::format("found \"{}\", and {} has no hpZ, expected engine deepspeed or native",
                       plan.secondary_shard, plan.engine->name));
  }
}

struct Product {
  std::string_view key;
  std::string what;
  double value;
};

std::vector<Product> products(const Plan& plan, const Model& model) {
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const double tokens = number(plan.micro_batch) * number(plan.sequence);
  std::vector<Product> result = {
      {"global_batch", "tokens of a step: micro_batch x grad_accum x dp x seq",
       tokens * number(plan.gradient_accumulation) * number(plan.data_parallel)},
      {"dp", "parameters x 16 bytes x ranks",
       number(count_parameters(model, plan.sequence)) * 16 * number(plan.data_parallel) *
           number(plan.tensor_parallel)},
  };
  if (!model.is_shape()) return result;
  const double layers = number(model.layers);
  // A layer keeps at most so many values of 4 bytes for a token: inputs, products and masks of both halves.
  const double expert_width = model.experts
                                  ? number(model.experts->top_k) * number(model.experts->expert_ffn) +
                                        number(model.experts->shared_ffn)
                                  : 0;
  const double width = 16 * number(model.hidden) + 8 * number(model.heads) * number(model.head_dim) +
                       8 * (number(model.ffn) + expert_width);
  result.push_back(
      {"micro_batch", "activations: micro_batch x seq x layers x width x 4", tokens * layers * width * 4});
  result.push_back({"micro_batch", "fp32 logits: micro_batch x seq x vocabulary x 4",
                    tokens * number(model.vocabulary) * 4});
  if (plan.attention != AttentionKernel::flash) {
    result.push_back({"seq", "attention scores: micro_batch x heads x seq x seq x layers x 4",
                      tokens * number(plan.sequence) * number(model.heads) * layers * 4});
  }
  return result;
}

void check_sizes(const Plan& plan, const Model& model, Problems& problems) {
  for (const Product& product : products(plan, model)) {
    if (product.value <= kLargestProduct) continue;
    refuse(problems, product.key,
           fmt::format("{} come to {:.3g}, expected at most {:.0e}", product.what, product.value,
                       kLargestProduct));
  }
}

}  // namespace

void check_plan(const Plan& plan, const Model& model, Problems& problems) {
  if (model.architecture == Architecture::encoder_decoder) {
    problems.add({model.name, 0, "",
                  "is an encoder-decoder model, expected a decoder: its parameters are counted (zeroplan "
                  "models count), but its training step is not modelled; params=N plans the states and the "
                  "traffic of a "
                  "model of that size"});
    return;
  }
  if (model.is_shape()) {
    check_tensor_parallel(plan, model, problems);
    check_sequence(plan, model, problems);
  }
  check_activations(plan, model, problems);
  check_offload(plan, problems);
  check_stage(plan, problems);
  check_shard(plan, problems);
  check_secondary_shard(plan, problems);
  check_sizes(plan, model, problems);
}

}  // namespace zeroplan::describe
