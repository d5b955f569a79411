#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/describe/plan/plan.hpp"
#include "planner/describe/text/document.hpp"
#include "planner/units.hpp"

// A DeepSpeed configuration (ds_config.json) as a plan. Sizes of buckets are in elements there. Keys of stage
// 3 are accepted with and without "stage3_". Defaults: DeepSpeed runtime/zero/config.py.
namespace zeroplan::describe {

struct DeepSpeedSizes {
  Elements reduce_bucket = 500'000'000;
  Elements allgather_bucket = 500'000'000;
  Elements prefetch_bucket = 50'000'000;
  Elements parameter_persistence_threshold = 100'000;
  Elements max_live_parameters = 1'000'000'000;
  Elements max_reuse_distance = 1'000'000'000;
  Elements sub_group = 1'000'000'000;
};

// A key whose value is "auto": it follows from the model.
struct AutomaticSize {
  std::string key;  // as written
  int line = 0;
  Elements DeepSpeedSizes::*member = nullptr;
};

struct DeepSpeedConfig {
  PlanFile file;
  DeepSpeedSizes sizes;                  // automatic ones hold the default until they are resolved
  std::vector<AutomaticSize> automatic;  // in file order of the table of keys
};

// Throws ConfigurationError. What becomes of each key stands in deepspeed_keys.cpp.
DeepSpeedConfig read_deepspeed_config(const Document& document);

// The sizes with "auto" put in, as the Hugging Face integration does: reduce_bucket_size = h x h,
// stage3_prefetch_bucket_size = 0.9 x h x h rounded down, stage3_param_persistence_threshold = 10 x h. Other
// keys keep DeepSpeed's default. Without `hidden`, a ConfigurationError names each key that needs it.
DeepSpeedSizes resolve_automatic_sizes(const DeepSpeedConfig& config, std::optional<std::int64_t> hidden,
                                       const std::string& source);

}  // namespace zeroplan::describe
