#include "planner/accuracy/pace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "planner/describe/machine/hardware_reader.hpp"
#include "planner/describe/text/named_description.hpp"
#include "planner/predict/kernels.hpp"
#include "planner/predict/time.hpp"

namespace zeroplan::accuracy {
namespace {

using describe::Engine;
using describe::MapReader;

constexpr std::string_view kSchema = "zeroplan.pace/1";
constexpr double kLargest = 1e6;

// FNV-1a, and not std::hash, which may differ between libraries.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 14695981039346656037U;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 1099511628211U;
  }
  return hash;
}

struct Pace {
  std::vector<PaceConstant> constants;
  std::int64_t deal = 0;  // what the hash of a configuration begins with
  std::map<std::string, std::string, std::less<>>
      alike;  // engines that are one with another where runs are dealt
};

const std::map<std::string, double Engine::*, std::less<>>& fields() {
  static const std::map<std::string, double Engine::*, std::less<>> all{
      {"matmul_fraction", &Engine::matmul_fraction},
      {"attention_fraction", &Engine::attention_fraction},
      {"kernel_gap_us", &Engine::kernel_gap_us},
      {"host_issue_us", &Engine::host_issue_us},
      {"elementwise_factor", &Engine::elementwise_factor},
      {"traffic_slowdown", &Engine::traffic_slowdown}};
  return all;
}

PaceConstant read_constant(MapReader& reader) {
  PaceConstant constant;
  constant.name = reader.string("name").value_or("");
  constant.architecture = reader.string("architecture").value_or("");
  if (const describe::Value* engines = reader.list("engines")) {
    for (const describe::Value& engine : engines->items) constant.engines.push_back(engine.text);
  }
  if (const auto field = fields().find(constant.name); field != fields().end())
    constant.field = field->second;
  if ((constant.field == nullptr) != constant.engines.empty() ||
      constant.engines.empty() == constant.architecture.empty()) {
    reader.problem("name", "expected engines and a constant of theirs, or an architecture");
  }
  constant.first = reader.real("first", 0, kLargest).value_or(0);
  constant.most = reader.real("most", 0, kLargest).value_or(kLargest);
  const std::vector<double> without =
      describe::read_numbers(reader, "without", {.minimum = 0, .maximum = kLargest}, "a value for each fold");
  if (without.size() == kFolds) {
    std::copy(without.begin(), without.end(), constant.without.begin());
  } else {
    reader.problem("without", fmt::format("expected {} values", kFolds));
  }
  reader.finish();
  return constant;
}

Pace read_pace() {
  Problems problems;
  const describe::Document& document = describe::document_of(describe::embedded_pace().front());
  MapReader reader(document.root, document.source, "", problems);
  describe::check_schema(reader, kSchema);
  Pace pace;
  pace.deal = reader.integer("deal", 0, 1000).value_or(0);
  if (const describe::Value* alike = reader.map("alike")) {
    for (const describe::Entry& entry : alike->entries) pace.alike.emplace(entry.key, entry.value.text);
  }
  if (const describe::Value* list = reader.list("constants")) {
    for (const describe::Value& item : list->items) {
      MapReader constant(item, document.source, "constants", problems);
      pace.constants.push_back(read_constant(constant));
    }
  }
  reader.finish();
  problems.throw_if_any();
  return pace;
}

const Pace& pace() {
  static const Pace read = read_pace();
  return read;
}

}  // namespace

const std::vector<PaceConstant>& pace_constants() { return pace().constants; }

bool applies(const PaceConstant& constant, const ModelledRun& run) {
  if (constant.field == nullptr) return run.cluster.device->architecture == constant.architecture;
  return std::find(constant.engines.begin(), constant.engines.end(), run.plan.engine->name) !=
         constant.engines.end();
}

PaceValues shipped_pace(const ModelledRun& run) {
  PaceValues values;
  for (const PaceConstant& constant : pace_constants()) {
    values.push_back(!applies(constant, run)     ? constant.first
                     : constant.field == nullptr ? predict::sustained_fraction(run.cluster.device)
                                                 : (*run.plan.engine).*constant.field);
  }
  return values;
}

double step_seconds(const ModelledRun& run, const program::StepProgram& program, const PaceValues& values) {
  describe::Engine engine = run.plan.engine;
  const double shipped = predict::sustained_fraction(run.cluster.device);
  double sustained = shipped;
  for (std::size_t c = 0; c < values.size(); ++c) {
    const PaceConstant& constant = pace_constants()[c];
    if (!applies(constant, run)) continue;
    if (constant.field == nullptr) {
      sustained = values[c];
    } else {
      engine.*constant.field = values[c];
    }
  }
  describe::Plan plan = run.plan;
  plan.engine = std::move(engine);
  predict::KernelRates rates = predict::kernel_rates(run.cluster.device, plan);
  rates.matmul_flops_per_s *= sustained / shipped;
  return predict::read_step_seconds(program, run.cluster, rates);
}

std::size_t fold_of(const ModelledRun& run) {
  const describe::Model& model = run.model;
  const std::string& engine = run.plan.engine->name;
  const auto alike = pace().alike.find(engine);
  const std::string configuration =
      fmt::format("split {}: hidden {} ffn {} heads {}, {} x {}, {}", pace().deal, model.hidden, model.ffn,
                  model.heads, run.cluster.device->name, run.cluster.node ? run.cluster.node->devices : 1,
                  alike == pace().alike.end() ? engine : alike->second);
  return static_cast<std::size_t>(hash_of(configuration) >> 32U) % kFolds;
}

PaceValues pace_without(std::size_t fold) {
  PaceValues values;
  for (const PaceConstant& constant : pace_constants()) values.push_back(constant.without.at(fold));
  return values;
}

}  // namespace zeroplan::accuracy
