#include "executor/storage/require_tensors.hpp"

#include <fmt/format.h>

#include <set>
#include <utility>
#include <vector>

namespace zeroplan::executor {

namespace {

constexpr std::size_t kMost = 10;

void add_some(const std::string& source, std::vector<std::pair<std::string, std::string>> found,
              std::string_view kind, Problems& problems) {
  for (std::size_t i = 0; i < found.size() && i < kMost; ++i) {
    problems.add({source, 0, found[i].first, found[i].second});
  }
  if (found.size() > kMost) {
    problems.add({source, 0, "", fmt::format("{} more tensors {}", found.size() - kMost, kind)});
  }
}

}  // namespace

void compare_tensors(const std::string& source, std::span<const TensorEntry> expected,
                     const TensorLookup& find, std::span<const std::string> present, Problems& problems) {
  std::vector<std::pair<std::string, std::string>> missing, misshaped, unexpected;
  std::set<std::string_view> known;
  std::vector<std::string> unknown;
  for (const TensorEntry& tensor : expected) known.insert(tensor.name);
  for (const std::string& name : present) {
    if (!known.contains(name)) unknown.push_back(name);
  }
  for (const TensorEntry& tensor : expected) {
    const TensorEntry* found = find(tensor.name);
    if (found == nullptr) {
      const std::string nearest = missing.size() < kMost ? nearest_name(tensor.name, unknown) : "";
      missing.emplace_back(tensor.name, fmt::format("is missing, expected {}{}", shape_text(tensor.shape),
                                                    nearest.empty() ? "" : "; nearest: " + nearest));
    } else if (found->shape != tensor.shape) {
      misshaped.emplace_back(tensor.name, fmt::format("has the shape {}, expected {}",
                                                      shape_text(found->shape), shape_text(tensor.shape)));
    }
  }
  for (std::string& name : unknown)
    unexpected.emplace_back(std::move(name), "is in the file and not in the model");
  add_some(source, std::move(missing), "are missing", problems);
  add_some(source, std::move(misshaped), "have another shape", problems);
  add_some(source, std::move(unexpected), "are not in the model", problems);
}

}  // namespace zeroplan::executor
