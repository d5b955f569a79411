#include "executor/saving.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace zeroplan::executor {

namespace {

constexpr std::string_view kOfStep = ".step-";

// N of a name `name`.step-N.
std::optional<std::int64_t> step_of(std::string_view file, std::string_view name) {
  if (!file.starts_with(name)) return std::nullopt;
  file.remove_prefix(name.size());
  if (!file.starts_with(kOfStep)) return std::nullopt;
  file.remove_prefix(kOfStep.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(file.data(), file.data() + file.size(), step);
  if (error != std::errc() || end != file.data() + file.size()) return std::nullopt;
  return step;
}

}  // namespace

Saver::Saver(SavePlan plan, Save save) : plan_(std::move(plan)), save_(std::move(save)) {}

bool Saver::is_time() const {
  return !plan_.path.empty() && plan_.every_time.count() > 0 &&
         std::chrono::steady_clock::now() - last_ >= plan_.every_time;
}

void Saver::after_step(std::int64_t steps, bool is_time) {
  if (plan_.path.empty()) return;
  if (is_time || (plan_.every_steps > 0 && steps % plan_.every_steps == 0)) save(steps);
}

void Saver::finish(std::int64_t steps) {
  if (!plan_.path.empty() && saved_steps_ != steps) save(steps);
}

void Saver::save(std::int64_t steps) {
  SavedFile file{plan_.path, ""};
  if (plan_.keep > 1) file.also = fmt::format("{}{}", kOfStep, steps);
  save_(file, steps);
  saved_steps_ = steps;
  last_ = std::chrono::steady_clock::now();
}

void remove_old_states(const SavePlan& plan, std::int64_t steps) {
  if (plan.keep <= 1) return;
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path target =
      fs::is_symlink(plan.path, error) ? fs::canonical(plan.path, error) : fs::path(plan.path);
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  std::vector<std::pair<std::int64_t, fs::path>> states;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const auto step = step_of(entry->path().filename().string(), target.filename().string());
    if (step && *step <= steps) states.emplace_back(*step, entry->path());
  }
  std::sort(states.rbegin(), states.rend());
  for (std::size_t i = static_cast<std::size_t>(plan.keep); i < states.size(); ++i)
    fs::remove(states[i].second, error);
}

}  // namespace zeroplan::executor
