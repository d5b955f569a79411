#include "cli/live_settings.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "planner/describe/quantity.hpp"
#include "planner/error.hpp"

namespace zeroplan::cli {

namespace {

constexpr std::int64_t kMaxSteps = 1'000'000'000;
constexpr std::int64_t kMaxThreads = 4096;
constexpr std::int64_t kMaxSeconds = 1'000'000;

class Reader {
 public:
  explicit Reader(const Request& request) : request_(request) {}

  std::int64_t integer(const std::string& key, std::int64_t minimum, std::int64_t maximum,
                       std::int64_t otherwise) {
    return read(key, otherwise,
                [&](const std::string& text) { return describe::parse_integer(text, minimum, maximum); });
  }
  double real(const std::string& key, double minimum, double maximum, double otherwise) {
    return read(key, otherwise,
                [&](const std::string& text) { return describe::parse_real(text, minimum, maximum); });
  }
  std::string text(const std::string& key) {
    return read(key, std::string(), [](const std::string& text) {
      if (text.empty()) throw std::invalid_argument("found empty text, expected a file");
      return text;
    });
  }
  bool flag(const std::string& key) const { return request_.own.contains(key); }

  // A file that is to be written at the end: hours of training must not end in a folder that is not there.
  void require_writable(const std::string& key, const std::string& path) {
    if (path.empty()) return;
    namespace fs = std::filesystem;
    std::error_code error;
    const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : fs::path(".");
    std::string why;
    if (fs::is_directory(path, error)) {
      why = "it is a folder";
    } else if (::access(folder.c_str(), W_OK) != 0) {
      why = fmt::format("{}: {}", folder.string(), std::strerror(errno));
    }
    if (!why.empty()) problem(key, fmt::format("{} cannot be written: {}", zeroplan::quoted(path), why));
  }

  void throw_if_any() const { problems_.throw_if_any(); }

 private:
  template <class Value, class Parse>
  Value read(const std::string& key, Value otherwise, const Parse& parse) {
    const auto found = request_.own.find(key);
    if (found == request_.own.end()) return otherwise;
    try {
      return parse(found->second);
    } catch (const std::invalid_argument& error) {
      problem(key, error.what());
      return otherwise;
    }
  }
  void problem(const std::string& key, std::string message) {
    problems_.add({"--" + key, 0, "", std::move(message)});
  }

  const Request& request_;
  Problems problems_;
};

}  // namespace

std::vector<OptionSpec> validate_options() {
  return {
      {{"--steps"}, "steps", "N", "steps that are measured (default 3)"},
      {{"--warm-up"}, "warm-up", "N", "steps before them (default 1)"},
      {{"--data"}, "data", "FILE", "its bytes are the tokens (default: drawn from the seed)"},
      {{"--seed"}, "seed", "N", "of the weights, and of the tokens without --data (default 1)"},
      {{"--rate"}, "rate", "R", "learning rate (default 3e-4)"},
      {{"--weight-decay"}, "weight-decay", "R", "decoupled weight decay (default 0.01)"},
      {{"--clip"}, "clip", "R", "largest norm of the whole gradient; 0: not clipped (default 1)"},
      {{"--save"}, "save", "FILE", "write the state to a checkpoint at the end, whole or not at all"},
      {{"--resume"}, "resume", "FILE", "go on from a checkpoint, also at another data-parallel degree"},
      {{"--threads"}, "threads", "N", "threads of a rank (default: the processors divided by the ranks)"},
      {{"--timeout"}, "timeout", "SECONDS", "longest wait for another rank (default 60)"},
      {{"--force"}, "force", "", "run also what is predicted not to fit"},
  };
}

LiveSettings read_live_settings(const Request& request) {
  Reader reader(request);
  LiveSettings settings;
  settings.steps = reader.integer("steps", 1, kMaxSteps, settings.steps);
  settings.warm_up = reader.integer("warm-up", 0, kMaxSteps, settings.warm_up);
  settings.seed = static_cast<std::uint64_t>(reader.integer("seed", 0, INT64_MAX, 1));
  settings.data = reader.text("data");
  settings.save = reader.text("save");
  settings.resume = reader.text("resume");
  settings.learning_rate = reader.real("rate", 0, 1e3, settings.learning_rate);
  settings.weight_decay = reader.real("weight-decay", 0, 1e3, settings.weight_decay);
  settings.clip_norm = reader.real("clip", 0, 1e9, settings.clip_norm);
  settings.threads = static_cast<int>(reader.integer("threads", 1, kMaxThreads, 0));
  settings.timeout = std::chrono::seconds(reader.integer("timeout", 1, kMaxSeconds, 60));
  settings.force = reader.flag("force");
  reader.require_writable("save", settings.save);
  reader.throw_if_any();
  return settings;
}

}  // namespace zeroplan::cli
