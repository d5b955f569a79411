#include "cli/live_settings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <utility>

#include "executor/storage/new_file.hpp"
#include "planner/describe/text/quantity.hpp"
#include "planner/error.hpp"

namespace zeroplan::cli {

namespace {

constexpr std::int64_t kMaxSteps = 1'000'000'000;
constexpr double kLargestLossScale = 16777216;  // that the executor goes to
constexpr double kHighestDropout = 0.999;
constexpr std::int64_t kMaxThreads = 4096;
constexpr std::int64_t kMaxSeconds = 1'000'000;
constexpr std::int64_t kMostStates = 1'000'000;

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
  bool boolean(const std::string& key, bool otherwise) {
    return read(key, otherwise, [](const std::string& text) { return describe::parse_boolean(text); });
  }
  // The place of a name in `names`.
  template <class Value>
  Value one_of(const std::string& key, const std::vector<std::string>& names, Value otherwise) {
    return read(key, otherwise, [&](const std::string& text) {
      const auto found = std::find(names.begin(), names.end(), text);
      if (found != names.end()) return static_cast<Value>(found - names.begin());
      const std::string nearest = nearest_name(text, names);
      throw std::invalid_argument(fmt::format("found {}, expected one of {}{}", zeroplan::quoted(text),
                                              fmt::join(names, ", "),
                                              nearest.empty() ? "" : "; nearest: " + nearest));
    });
  }
  // "0.9,0.95"
  std::pair<double, double> pair(const std::string& key, double least, double below,
                                 std::pair<double, double> otherwise) {
    return read(key, otherwise, [&](const std::string& text) {
      const std::size_t comma = text.find(',');
      if (comma == std::string::npos) {
        throw std::invalid_argument(
            fmt::format("found {}, expected two numbers with a comma between them", zeroplan::quoted(text)));
      }
      const auto number = [&](const std::string& part) {
        const double value = describe::parse_real(part, least, below);
        if (value == below)
          throw std::invalid_argument(fmt::format("found {}, expected less than {}", part, below));
        return value;
      };
      return std::pair{number(text.substr(0, comma)), number(text.substr(comma + 1))};
    });
  }

  // A number of steps, or a time with its unit.
  void every(const std::string& key, std::int64_t& steps, std::chrono::milliseconds& time) {
    read(key, 0, [&](std::string text) {
      const std::size_t unit = text.empty() ? std::string::npos : std::string_view("smh").find(text.back());
      if (unit == std::string::npos) {
        try {
          steps = describe::parse_integer(text, 1, kMaxSteps);
        } catch (const std::invalid_argument& error) {
          throw std::invalid_argument(fmt::format("{}, or a time like 30s, 10m or 2h", error.what()));
        }
        return 0;
      }
      text.pop_back();
      constexpr std::array<int, 3> kSeconds{1, 60, 3600};
      time = std::chrono::seconds(describe::parse_integer(text, 1, kMaxSeconds) * kSeconds[unit]);
      return 0;
    });
  }

  // A file that is to be written at the end: hours of training must not end in a folder that is not there.
  void require_writable(const std::string& key, const std::string& path) {
    if (path.empty()) return;
    if (const std::optional<std::string> why = executor::why_not_replaceable(path)) {
      problem(key, fmt::format("{} cannot be written: {}", zeroplan::quoted(path), *why));
    }
  }

  // `key` says something only where `condition` holds.
  void only_where(bool condition, const std::string& key, const std::string& where) {
    if (!condition && flag(key)) problem(key, "is not used here; it is " + where);
  }
  void refuse(const std::string& key, std::string message) { problem(key, std::move(message)); }

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
      {{"--data"},
       "data",
       "FILE",
       "tokens: a .bin of token numbers, or any bytes (default: drawn from the seed)"},
      {{"--data-type"}, "data-type", "TYPE", "auto (default), bytes, uint16 or int32"},
      {{"--shuffle"},
       "shuffle",
       "on|off",
       "sequences of --data in an order drawn from the seed (default on)"},
      {{"--seed"}, "seed", "N", "of the weights, of the tokens or their order, and of masks (default 1)"},
      {{"--dropout-rate"}, "dropout-rate", "P", "with --dropout: the share that is dropped (default 0.1)"},
      {{"--rate"}, "rate", "R", "learning rate, the highest (default 3e-4)"},
      {{"--rate-warm-up"}, "rate-warm-up", "N", "updates in which the rate rises to it (default 0)"},
      {{"--rate-decay"}, "rate-decay", "HOW", "constant (default), linear or cosine, behind the warm-up"},
      {{"--rate-min"}, "rate-min", "R", "where the rate falls to (default 0)"},
      {{"--rate-steps"}, "rate-steps", "N", "updates until then (default: to the last step of this run)"},
      {{"--betas"}, "betas", "B1,B2", "Adam's, and the first one momentum's (default 0.9,0.999)"},
      {{"--epsilon"}, "epsilon", "R", "Adam's (default 1e-8)"},
      {{"--weight-decay"}, "weight-decay", "R", "decoupled weight decay (default 0.01)"},
      {{"--decay"}, "decay", "WHAT", "what it applies to: matrices (default), not biases and norms; or all"},
      {{"--clip"}, "clip", "R", "largest norm of the whole gradient; 0: not clipped (default 1)"},
      {{"--loss-scale"}, "loss-scale", "S", "fp16: the loss is scaled by it at first (default 65536)"},
      {{"--loss-scale-window"},
       "loss-scale-window",
       "N",
       "fp16: steps without overflow until it doubles "
       "(default 1000)"},
      {{"--save"}, "save", "FILE", "write the state to a checkpoint at the end, atomically"},
      {{"--save-every"}, "save-every", "N|TIME", "also every N steps, or every 30s, 10m, 2h"},
      {{"--keep"}, "keep", "K", "the last K states, also as FILE.step-N (default 1: FILE alone)"},
      {{"--resume"}, "resume", "FILE", "go on from a checkpoint, also at other degrees and another stage"},
      {{"--weights"},
       "weights",
       "FILE",
       "start from safetensors with Hugging Face names: file, index or folder"},
      {{"--export"}, "export", "FILE", "write the weights at the end as safetensors with Hugging Face names"},
      {{"--threads"}, "threads", "N", "threads of a rank (default: the processors divided by the ranks)"},
      {{"--timeout"}, "timeout", "SECONDS", "longest wait for another rank (default 60)"},
      {{"--pin"}, "pin", "on|off", "each rank to cores of its own, where there are enough (default on)"},
      {{"--against-one-rank"},
       "against-one-rank",
       "N",
       "take the first N steps again on one rank, and compare losses and gradient norms"},
      run_device_option(),
      {{"--force"}, "force", "", "run also what is predicted not to fit"},
  };
}

namespace {

void read_data(Reader& reader, executor::RunSettings& settings) {
  settings.data = reader.text("data");
  settings.data_type = reader.one_of("data-type", executor::token_type_names(), settings.data_type);
  settings.shuffle = reader.boolean("shuffle", settings.shuffle);
  for (const char* key : {"data-type", "shuffle"}) reader.only_where(reader.flag("data"), key, "of --data");
}

// "100": steps; "30s", "10m", "2h": time.
void read_save(Reader& reader, executor::RunSettings& settings) {
  executor::SavePlan& save = settings.save;
  save.path = reader.text("save");
  save.keep = reader.integer("keep", 1, kMostStates, save.keep);
  reader.every("save-every", save.every_steps, save.every_time);
  for (const char* key : {"save-every", "keep"}) reader.only_where(reader.flag("save"), key, "of --save");
  reader.require_writable("save", save.path);
}

void read_rate(Reader& reader, executor::RunSettings& settings) {
  using Decay = executor::RateSchedule::Decay;
  executor::RateSchedule& rate = settings.rate;
  settings.learning_rate = reader.real("rate", 0, 1e3, settings.learning_rate);
  rate.warm_up_steps = reader.integer("rate-warm-up", 0, kMaxSteps, rate.warm_up_steps);
  rate.decay = reader.one_of("rate-decay", executor::decay_names(), rate.decay);
  rate.minimum = reader.real("rate-min", 0, 1e3, rate.minimum);
  rate.steps = reader.integer("rate-steps", 1, kMaxSteps, rate.steps);
  for (const char* key : {"rate-min", "rate-steps"}) {
    reader.only_where(rate.decay != Decay::constant, key, "of --rate-decay linear and cosine");
  }
  if (rate.minimum > settings.learning_rate) {
    reader.refuse("rate-min", fmt::format("found {:g}, expected at most the rate of {:g}", rate.minimum,
                                          settings.learning_rate));
  }
  if (rate.steps > 0 && rate.steps < rate.warm_up_steps) {
    reader.refuse("rate-steps", fmt::format("found {}, expected at least the {} of --rate-warm-up",
                                            rate.steps, rate.warm_up_steps));
  }
}

}  // namespace

LiveSettings read_live_settings(const Request& request) {
  Reader reader(request);
  LiveSettings live;
  executor::RunSettings& settings = live.run;
  settings.steps = reader.integer("steps", 1, kMaxSteps, settings.steps);
  settings.warm_up = reader.integer("warm-up", 0, kMaxSteps, settings.warm_up);
  settings.seed = static_cast<std::uint64_t>(reader.integer("seed", 0, INT64_MAX, 1));
  read_save(reader, settings);
  settings.resume = reader.text("resume");
  settings.weights = reader.text("weights");
  reader.only_where(settings.resume.empty(), "weights",
                    "where a run starts, and --resume goes on with its own");
  settings.export_to = reader.text("export");
  reader.require_writable("export", settings.export_to);
  read_data(reader, settings);
  read_rate(reader, settings);
  std::tie(settings.beta1, settings.beta2) = reader.pair("betas", 0, 1, {settings.beta1, settings.beta2});
  settings.epsilon = reader.real("epsilon", 0, 1, settings.epsilon);
  settings.decayed = reader.one_of("decay", {"all", "matrices"}, settings.decayed);
  settings.loss_scale = reader.real("loss-scale", 1, kLargestLossScale, settings.loss_scale);
  settings.loss_scale_window = reader.integer("loss-scale-window", 1, kMaxSteps, settings.loss_scale_window);
  settings.weight_decay = reader.real("weight-decay", 0, 1e3, settings.weight_decay);
  settings.clip_norm = reader.real("clip", 0, 1e9, settings.clip_norm);
  settings.dropout = reader.real("dropout-rate", 0, kHighestDropout, settings.dropout);
  settings.threads = static_cast<int>(reader.integer("threads", 1, kMaxThreads, 0));
  settings.timeout = std::chrono::seconds(reader.integer("timeout", 1, kMaxSeconds, 60));
  settings.pin = reader.boolean("pin", settings.pin);
  live.against_one_rank = reader.integer("against-one-rank", 1, kMaxSteps, 0);
  live.force = reader.flag("force");
  live.device = read_run_device(request);
  settings.device = live.device.kind == RunDevice::Kind::cuda ? "cuda" : "cpu";
  settings.device_index = live.device.index;
  reader.throw_if_any();
  return live;
}

void require_used(const Request& request, const describe::Plan& plan) {
  Reader reader(request);
  const bool is_fp16 = plan.precision == describe::Precision::fp16;
  for (const char* key : {"loss-scale", "loss-scale-window"})
    reader.only_where(is_fp16, key, "of --dtype fp16");
  reader.only_where(plan.dropout, "dropout-rate", "of --dropout");
  const std::string& optimizer = plan.optimizer->name;
  reader.only_where(optimizer == "adam", "epsilon", "of --optimizer adam");
  reader.only_where(optimizer == "adam" || optimizer == "sgd-momentum", "betas",
                    "of --optimizer adam and sgd-momentum");
  reader.throw_if_any();
}

}  // namespace zeroplan::cli
