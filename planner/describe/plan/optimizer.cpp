#include "planner/describe/plan/optimizer.hpp"

#include <fmt/format.h>

#include "planner/describe/text/embedded.hpp"
#include "planner/describe/text/named_description.hpp"

namespace zeroplan::describe {
namespace {

constexpr Bytes kMaxBytesPerParameter = 64;
constexpr Elements kMaxBlock = 1 << 20;

std::string required_text(MapReader& map, std::string_view key, std::string_view meaning) {
  if (!map.has(key)) map.missing(key, meaning);
  return map.string(key).value_or("");
}

OptimizerPart read_part(MapReader map) {
  OptimizerPart part;
  part.name = required_text(map, "name", "the name of this part of the state");
  if (!map.has("bytes_per_parameter")) map.missing("bytes_per_parameter", "bytes for each parameter");
  part.bytes_per_parameter = map.integer("bytes_per_parameter", 1, kMaxBytesPerParameter).value_or(0);
  part.block_elements = map.integer("block_elements", 1, kMaxBlock).value_or(0);
  part.block_bytes = map.integer("block_bytes", 1, kMaxBlock).value_or(0);
  part.factored = map.boolean("factored").value_or(false);
  if (map.has("block_elements") != map.has("block_bytes")) {
    map.problem(map.has("block_elements") ? "block_elements" : "block_bytes",
                "block_elements and block_bytes belong together");
  }
  if (part.factored && part.block_elements != 0) {
    map.problem("factored", "found true beside block_elements, expected one of the two");
  }
  map.finish();
  return part;
}

}  // namespace

Optimizer read_optimizer_yaml(const Document& document) {
  Problems problems;
  MapReader map(document.root, document.source, "", problems);
  check_schema(map, "zeroplan.optimizer/1");
  Optimizer optimizer;
  optimizer.name = required_text(map, "name", "what a user types");
  optimizer.title = required_text(map, "title", "one line of description");
  optimizer.source = required_text(map, "source", "where the bytes come from");
  map.ignore("aliases");
  if (!map.has("parts")) map.missing("parts", "a list of the states, empty where there are none");
  if (const Value* parts = map.list("parts")) {
    if (parts->items.size() > kMaxOptimizerParts) {
      map.problem("parts", fmt::format("found {} parts, expected at most {}", parts->items.size(),
                                       kMaxOptimizerParts));
    } else {
      for (const Value& part : parts->items) {
        const std::string path = fmt::format("parts[{}]", optimizer.parts.size());
        optimizer.parts.push_back(read_part(MapReader(part, document.source, path, problems)));
      }
    }
  }
  map.finish();
  problems.throw_if_any();
  return optimizer;
}

Described<Optimizer> find_optimizer(const std::string& name) {
  const EmbeddedFile& file = find_named(embedded_optimizers(), name, "--optimizer", Vocabulary::optimizer);
  return Described<Optimizer>::lasting(remembered<Optimizer>(file, read_optimizer_yaml));
}

std::vector<std::string> optimizer_names() { return names_of(embedded_optimizers()); }

}  // namespace zeroplan::describe
