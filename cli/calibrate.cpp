#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include "cli/calibrate_gpu.hpp"
#include "cli/command.hpp"
#include "cli/environment.hpp"
#include "cli/ranks.hpp"
#include "cli/run_device.hpp"
#include "cli/run_identity.hpp"
#include "cli/version.hpp"
#include "executor/calibration/timed_program.hpp"
#include "executor/error.hpp"
#include "executor/modules.hpp"
#include "executor/process_memory.hpp"
#include "executor/run/ranks.hpp"
#include "planner/calibrate/calibration.hpp"
#include "planner/describe/text/quantity.hpp"
#include "planner/error.hpp"
#include "planner/predict/kernels.hpp"
#include "planner/predict/memory.hpp"
#include "reports/calibration_report.hpp"
#include "reports/numbers.hpp"

namespace zeroplan::cli {
namespace {

using describe::Precision;
using executor::Communicator;
using executor::Launch;

constexpr std::int64_t kMostRounds = 1000, kMostRanks = 1024;
constexpr std::int64_t kQuickRounds = 1;
constexpr std::int64_t kRunsOfRound = 2;
constexpr std::chrono::seconds kLongestCollective{60};  // of GPUs
constexpr std::chrono::minutes kLongestWait{60};        // ranks that are not at work wait for those that are

struct Settings {
  RunDevice device;
  std::vector<std::int64_t> counts;  // of ranks at work, ascending
  bool all_types = true;             // that the device has: nobody said which
  calibrate::Scope scope;
};

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  for (std::size_t start = 0; start <= list.size();) {
    const std::size_t comma = std::min(list.find(',', start), list.size());
    words.push_back(list.substr(start, comma - start));
    start = comma + 1;
  }
  return words;
}

std::vector<Precision> read_types(const std::string& list, Problems& problems) {
  std::vector<Precision> types;
  for (const std::string& word : words_of(list)) {
    const auto all = {Precision::fp32, Precision::fp16, Precision::bf16};
    const auto found =
        std::find_if(all.begin(), all.end(), [&](Precision type) { return describe::name_of(type) == word; });
    if (found == all.end()) {
      problems.add({"--types", 0, "",
                    fmt::format("found {}, expected fp32, fp16 and bf16 with commas between", quoted(word))});
      continue;
    }
    types.push_back(*found);
  }
  return types;
}

// 1, 2, 4 ... and `most`.
std::vector<std::int64_t> usual_counts(std::int64_t most) {
  std::set<std::int64_t> counts{most};
  for (std::int64_t count = 1; count < most; count *= 2) counts.insert(count);
  return {counts.begin(), counts.end()};
}

std::vector<std::int64_t> read_counts(const std::string& list, std::int64_t most, Problems& problems) {
  std::set<std::int64_t> counts;
  for (const std::string& word : words_of(list)) {
    try {
      counts.insert(describe::parse_integer(word, 1, most));
    } catch (const std::invalid_argument& error) {
      problems.add({"--ranks", 0, "", error.what()});
    }
  }
  return {counts.begin(), counts.end()};
}

// How many ranks there are places for: processors, GPUs, or the processes of a launcher.
std::int64_t ranks_that_fit(const RunDevice& device, const Launch& launch) {
  if (launch.kind != Launch::Kind::threads) return launch.ranks;
  if (device.kind == RunDevice::Kind::cpu) {
    return static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  }
  return device.index >= 0 ? 1 : executor::count_devices("cuda");
}

// Whether the sizes are those for a GPU.
bool read_sizes(const std::string& text, bool on_gpus, Problems& problems) {
  if (!text.empty() && text != "gpu" && text != "cpu") {
    problems.add({"--sizes", 0, "", fmt::format("found {}, expected cpu or gpu", quoted(text))});
  }
  return text.empty() ? on_gpus : text == "gpu";
}

Settings read_settings(const Request& request, const Launch& launch) {
  Problems problems;
  const auto given = [&](const std::string& key) -> std::optional<std::string> {
    const auto found = request.own.find(key);
    return found == request.own.end() ? std::nullopt : std::optional(found->second);
  };
  Settings settings;
  settings.device = read_run_device(request);
  settings.scope.on_gpus = settings.device.kind == RunDevice::Kind::cuda;
  settings.scope.sizes.of_gpu = read_sizes(given("sizes").value_or(""), settings.scope.on_gpus, problems);
  if (!request.hardware.empty() && !settings.scope.on_gpus) {
    problems.add({"--hw", 0, "", "is not used here; it says which description a GPU's peaks are taken from"});
  }
  settings.scope.sizes.quick = given("quick").has_value();
  if (settings.scope.sizes.quick) settings.scope.rounds = kQuickRounds;
  settings.scope.types = read_types(given("types").value_or("fp32,bf16,fp16"), problems);
  settings.all_types = !given("types");
  const std::int64_t here = ranks_that_fit(settings.device, launch);
  if (const auto list = given("ranks")) {
    const bool is_open = launch.kind == Launch::Kind::threads && !settings.scope.on_gpus;
    settings.counts = read_counts(*list, is_open ? kMostRanks : here, problems);
  } else {
    settings.counts = usual_counts(here);
  }
  if (const auto repeats = given("repeats")) {
    try {
      settings.scope.rounds = describe::parse_integer(*repeats, 1, kMostRounds);
    } catch (const std::invalid_argument& error) {
      problems.add({"--repeats", 0, "", error.what()});
    }
  }
  for (const std::string& argument : request.arguments) {
    problems.add({"", 0, "", fmt::format("found {}, expected options only", quoted(argument))});
  }
  problems.throw_if_any();
  return settings;
}

// What one rank does, all together; the device is rank 0's alone.
class Calibration {
 public:
  Calibration(const Settings& settings, const Launch& launch, std::ostream* progress,
              describe::Device& device)
      : settings_(settings), launch_(launch), progress_(progress), device_(device) {}

  void run_counts(Communicator& world) const {
    for (const std::int64_t count : settings_.counts) {
      const bool works = world.rank() < count;
      const std::unique_ptr<Communicator> group = world.split(works ? 0 : 1, world.rank());
      if (works) with_ranks(*group);
      world.barrier();
    }
  }

 private:
  void with_ranks(Communicator& group) const {
    const std::string source = fmt::format(
        "zeroplan calibrate: {} as {}, {} each", reports::counted(group.size(), "rank"),
        executor::text_of(launch_.kind),
        settings_.scope.on_gpus ? "a GPU"
                                : reports::counted(executor::threads_of_one_of(group.size()), "thread"));
    const auto run = [&](const calibrate::Probe& probe, std::int64_t round) {
      if (group.rank() == 0 && progress_ != nullptr) {
        *progress_ << fmt::format("zeroplan: {}, round {} of {}: {}", reports::counted(group.size(), "rank"),
                                  round, settings_.scope.rounds, probe.what)
                   << std::endl;
      }
      return run_probe(probe, group);
    };
    calibrate::measure(settings_.scope, {.size = group.size(), .rank = group.rank()}, source, run, device_);
  }

  // Of this rank, as validate gives them out.
  int index_of(const Communicator& group) const {
    if (settings_.device.index >= 0) return settings_.device.index;
    return static_cast<int>(launch_.kind == Launch::Kind::threads ? group.rank() : launch_.local_rank);
  }

  calibrate::ProbeRun run_probe(const calibrate::Probe& probe, Communicator& group) const {
    const predict::MemoryProfile memory = predict::read_memory(probe.program);
    executor::TimedProgram timed;
    timed.plan = {probe.program, {memory.peak, memory.host_peak, true}};
    timed.batches.sequence = probe.sequence;
    timed.batches.micro_batch = probe.micro_batch;
    timed.batches.gradient_accumulation = probe.gradient_accumulation;
    timed.batches.data_parallel = group.size();
    timed.vocabulary = probe.vocabulary;
    timed.repeats = kRunsOfRound;
    const bool on_gpus = settings_.scope.on_gpus;
    const executor::DeviceOptions options{.threads = executor::threads_of_one_of(group.size()),
                                          .index = on_gpus ? index_of(group) : 0};
    if (on_gpus && group.size() > 1) {
      timed.planes = [](executor::ControlPlane& world, executor::Device& own,
                        std::span<const program::Group> groups) {
        return executor::make_nccl_module_planes(world, own, groups, kLongestCollective);
      };
    }
    executor::InstructionSeconds times = executor::time_program(
        std::move(timed), executor::make_device(on_gpus ? "cuda" : "cpu", options), group);
    return {std::move(times.repeats), std::move(times.waiting), times.workspace_bytes,
            times.beside_buffers_bytes};
  }

  const Settings& settings_;
  const Launch& launch_;
  std::ostream* progress_;
  describe::Device& device_;
};

// Ends without a profile.
Answer failed(const Request& request, const Launch& launch, const std::exception& error, int exit_code) {
  return end_of_rank(request, launch, std::string("error: ") + error.what(), exit_code);
}

}  // namespace

std::vector<OptionSpec> calibrate_options() {
  OptionSpec device = run_device_option();
  device.help = "measure processors (default), GPUs, or GPU N alone";
  return {
      {{"--ranks"},
       "ranks",
       "LIST",
       "numbers of ranks at work, such as 1,2 (default 1, 2, 4 ... processors)"},
      {{"--types"}, "types", "LIST", "types to measure (default fp32,bf16,fp16, those that a GPU has)"},
      {{"--repeats"},
       "repeats",
       "N",
       "rounds through everything that is measured (default 3; 1 with --quick)"},
      std::move(device),
      {{"--hw"},
       "hw",
       "NAME|FILE",
       "with --device cuda: where peaks and links are taken from (default: the shipped description of the "
       "GPU)"},
      {{"--sizes"},
       "sizes",
       "cpu|gpu",
       "sizes of what is measured: those for processors are small (default: as --device)"},
      {{"--quick"}, "quick", "", "few and small sizes, in seconds; good to try, not to predict with"},
  };
}

Answer calibrate(const Request& request) {
  const Launch launch = executor::detect_launch(executor::environment_variable, executor::has_mpi_module());
  const bool speaks = launch.rank == 0;
  const reports::RunEnvironment environment = run_environment(request.words);
  const std::string source =
      fmt::format("measured {} by zeroplan {} ({})", environment.started, version(), commit());
  describe::Device device;
  try {
    Settings settings = read_settings(request, launch);
    std::optional<CalibratedGpu> gpu;
    if (settings.scope.on_gpus) {
      // Rank 0's stands for all, which are alike.
      const int first = launch.kind == Launch::Kind::threads ? 0 : static_cast<int>(launch.local_rank);
      gpu.emplace(settings.device.index >= 0 ? settings.device.index : first, request.hardware);
      device = gpu->begin(source);
      if (settings.all_types) {  // a V100 multiplies no bf16
        std::erase_if(settings.scope.types,
                      [&](Precision type) { return !predict::peak_tflops(device, type); });
      }
    } else {
      executor::make_device("cpu", {.threads = 1});
      device = calibrate::new_device(fmt::format("{}, {}", environment.processor, source),
                                     executor::resident_bytes());
    }
    const Calibration calibration(settings, launch, speaks ? request.progress : nullptr, device);
    executor::run_as_launched(launch,
                              {settings.counts.back(), kLongestWait, run_identity(request, launch),
                               end_stalled, teller_of(request.progress)},
                              [&](Communicator& world) { calibration.run_counts(world); });
    if (gpu) gpu->end(device, source);
  } catch (const executor::NotPossible& error) {
    return failed(request, launch, error, kNotPossible);
  } catch (const executor::DeviceError& error) {
    return failed(request, launch, error, kRunFailed);
  } catch (const executor::CommunicationError& error) {
    return failed(request, launch, error, kRunFailed);
  }
  if (!speaks) return Answer{{}, kYes, true};
  calibrate::finish(device);
  return {reports::calibration_report({version(), device, environment}), kYes};
}

}  // namespace zeroplan::cli
