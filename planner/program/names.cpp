#include "planner/program/measurement.hpp"
#include "planner/program/step_program.hpp"

namespace zeroplan::program {

std::string_view name_of(Category category) {
  static constexpr std::string_view kNames[kCategories] = {"parameter",  "gradient",   "optimizer_state",
                                                           "activation", "checkpoint", "gathered",
                                                           "bucket",     "logits",     "workspace"};
  return kNames[static_cast<std::size_t>(category)];
}

std::string_view name_of(GroupKind kind) {
  static constexpr std::string_view kNames[kGroupKinds] = {"tensor_parallel", "data_parallel", "shard",
                                                           "replica", "secondary_shard"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view name_of(SectionKind kind) {
  static constexpr std::string_view kNames[] = {
      "states",       "cleared gradients", "micro-batch",    "embedding forward",  "layer forward",
      "head forward", "head backward",     "layer backward", "embedding backward", "step"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view name_of(MemoryPoint point) {
  static constexpr std::string_view kNames[kMemoryPoints] = {"opened", "arena", "communicators", "first_step",
                                                             "last_step"};
  return kNames[static_cast<std::size_t>(point)];
}

}  // namespace zeroplan::program
