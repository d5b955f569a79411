#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include "cli/command.hpp"
#include "cli/environment.hpp"
#include "cli/ranks.hpp"
#include "cli/run_identity.hpp"
#include "cli/version.hpp"
#include "executor/calibration/probe.hpp"
#include "executor/error.hpp"
#include "executor/modules.hpp"
#include "executor/process_memory.hpp"
#include "planner/calibrate/probes.hpp"
#include "planner/calibrate/rates.hpp"
#include "planner/describe/text/quantity.hpp"
#include "planner/error.hpp"
#include "planner/predict/memory.hpp"
#include "reports/calibration_report.hpp"
#include "reports/numbers.hpp"

namespace zeroplan::cli {
namespace {

using describe::Precision;
using executor::Communicator;
using executor::Launch;

constexpr std::int64_t kMostRounds = 1000, kMostRanks = 1024;
constexpr std::int64_t kRounds = 3, kQuickRounds = 1;
constexpr std::int64_t kRunsOfRound = 2;
constexpr std::chrono::minutes kLongestWait{60};  // ranks that are not at work wait for those that are
constexpr double kGiga = 1e9, kTera = 1e12;

struct Settings {
  std::vector<std::int64_t> counts;  // of ranks at work, ascending
  std::vector<Precision> types;
  std::int64_t rounds = kRounds;
  calibrate::Extent extent;
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

std::vector<std::int64_t> read_counts(const std::string& list, const Launch& launch, Problems& problems) {
  const std::int64_t most = launch.kind == Launch::Kind::threads ? kMostRanks : launch.ranks;
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

Settings read_settings(const Request& request, const Launch& launch) {
  Problems problems;
  const auto given = [&](const std::string& key) -> std::optional<std::string> {
    const auto found = request.own.find(key);
    return found == request.own.end() ? std::nullopt : std::optional(found->second);
  };
  Settings settings;
  settings.extent.quick = given("quick").has_value();
  if (settings.extent.quick) settings.rounds = kQuickRounds;
  settings.types = read_types(given("types").value_or("fp32,bf16,fp16"), problems);
  if (const auto list = given("ranks")) {
    settings.counts = read_counts(*list, launch, problems);
  } else {
    const auto processors = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
    settings.counts = usual_counts(launch.kind == Launch::Kind::threads ? processors : launch.ranks);
  }
  if (const auto repeats = given("repeats")) {
    try {
      settings.rounds = describe::parse_integer(*repeats, 1, kMostRounds);
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

// What one rank does, all together; rank 0 keeps what comes of it.
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
  std::string source(std::int64_t ranks) const {
    return fmt::format("zeroplan calibrate: {} as {}, {} each", reports::counted(ranks, "rank"),
                       text_of(launch_.kind), reports::counted(threads_of_one_of(ranks), "thread"));
  }

  // A machine is slower for seconds at a time, when it is shared or hot: so all probes are run in turn,
  // several times, and what is slow in one round only does not count.
  void with_ranks(Communicator& group) const {
    const program::Group ranks{.size = group.size(), .rank = group.rank()};
    std::vector<calibrate::Probe> kernels, collectives;
    for (const Precision precision : settings_.types) {
      for (calibrate::Probe& probe : calibrate::kernel_probes(precision, ranks, settings_.extent)) {
        kernels.push_back(std::move(probe));
      }
      if (group.size() > 1) {
        collectives.push_back(calibrate::collective_probe(precision, ranks, settings_.extent));
      }
    }
    std::vector<calibrate::Probe> skews;
    if (group.size() > 1) skews.push_back(calibrate::skew_probe(ranks, settings_.extent));

    std::vector<calibrate::Repeats> of_kernels(kernels.size()), of_collectives(collectives.size()),
        of_skews(skews.size());
    for (std::int64_t round = 1; round <= settings_.rounds; ++round) {
      run_all(kernels, of_kernels, round, group);
      run_all(collectives, of_collectives, round, group, Waiting::without);
      run_all(skews, of_skews, round, group);
    }
    if (group.rank() != 0) return;
    calibrate::KernelTables tables;
    for (std::size_t i = 0; i < kernels.size(); ++i) tables.add(kernels[i], of_kernels[i]);
    for (std::size_t i = 0; i < collectives.size(); ++i) {
      const auto more = calibrate::collective_tables(collectives[i], of_collectives[i], source(ranks.size));
      device_.attained_collectives.insert(device_.attained_collectives.end(), more.begin(), more.end());
    }
    const double skew = skews.empty() ? 0 : calibrate::skew_of(skews.front(), of_skews.front());
    device_.calibrated.push_back(tables.rates(ranks.size, source(ranks.size), skew));
  }

  enum class Waiting { included, without };  // for other ranks, in the seconds of collectives

  void run_all(const std::vector<calibrate::Probe>& probes, std::vector<calibrate::Repeats>& times,
               std::int64_t round, Communicator& group, Waiting waiting = Waiting::included) const {
    for (std::size_t i = 0; i < probes.size(); ++i) {
      if (group.rank() == 0 && progress_ != nullptr) {
        *progress_ << fmt::format("zeroplan: {}, round {} of {}: {}", reports::counted(group.size(), "rank"),
                                  round, settings_.rounds, probes[i].what)
                   << std::endl;
      }
      const executor::ProbeTimes result = run(probes[i], group);
      std::vector<double> seconds = calibrate::mean_of(result.repeats);
      if (waiting == Waiting::without) {
        const std::vector<double> waited = calibrate::mean_of(result.waiting);
        for (std::size_t k = 0; k < seconds.size(); ++k) seconds[k] -= waited[k];
      }
      times[i].push_back(std::move(seconds));
    }
  }

  executor::ProbeTimes run(const calibrate::Probe& probe, Communicator& group) const {
    const predict::MemoryProfile memory = predict::read_memory(probe.program);
    executor::Probe run;
    run.plan = {probe.program, {memory.peak, memory.host_peak, true}};
    run.batches.sequence = probe.sequence;
    run.batches.micro_batch = probe.micro_batch;
    run.batches.gradient_accumulation = probe.gradient_accumulation;
    run.batches.data_parallel = group.size();
    run.vocabulary = probe.vocabulary;
    run.repeats = kRunsOfRound;
    const executor::DeviceOptions options{.threads = threads_of_one_of(group.size())};
    executor::ProbeTimes result =
        executor::run_probe(std::move(run), executor::make_device("cpu", options), group);
    if (group.rank() == 0) {
      auto& workspace = device_.overheads.library_workspace_bytes;
      const auto bytes = static_cast<double>(result.workspace_bytes);
      if (!workspace || workspace->value < bytes) {
        workspace = describe::Figure{bytes, source(group.size()), {}, false};
      }
    }
    return result;
  }

  const Settings& settings_;
  const Launch& launch_;
  std::ostream* progress_;
  describe::Device& device_;  // of rank 0 alone
};

// The rate of large operands of a kernel on the machine with one rank.
std::optional<describe::Figure> streaming_rate(const describe::Device& device, program::Op op) {
  for (const describe::MeasuredKernel& kernel : device.calibrated.front().kernels()) {
    if (kernel.kind.op == op) {
      return describe::Figure{kernel.rates.back() / kGiga, device.calibrated.front().source(), {}, false};
    }
  }
  return std::nullopt;
}

// The fastest product of each type on the whole machine.
void add_products(describe::Device& device) {
  const describe::CalibratedRates& rates = device.calibrated.front();
  for (const describe::MeasuredKernel& kernel : rates.kernels()) {
    if (kernel.kind.op != program::Op::matmul) continue;
    const auto fastest = static_cast<std::size_t>(std::max_element(kernel.rates.begin(), kernel.rates.end()) -
                                                  kernel.rates.begin());
    const auto& [rows, columns, depths] = kernel.axes;
    describe::AttainedMatmul product;
    product.dtype = program::name_of(static_cast<program::DataType>(describe::type_at(kernel.kind.types, 0)));
    product.shape =
        fmt::format("{:.0f} x {:.0f} x {:.0f}", rows[fastest / depths.size() / columns.size()],
                    columns[fastest / depths.size() % columns.size()], depths[fastest % depths.size()]);
    product.tflops = product.tflops_high = kernel.rates[fastest] / kTera;
    product.source = rates.source();
    auto& all = device.attained_matmul;
    const auto same = std::find_if(all.begin(), all.end(), [&](const describe::AttainedMatmul& other) {
      return other.dtype == product.dtype;
    });
    if (same == all.end()) {
      all.push_back(std::move(product));
    } else if (same->tflops < product.tflops) {
      *same = std::move(product);
    }
  }
}

// Ends without a profile.
Answer failed(const Request& request, const Launch& launch, const std::exception& error, int exit_code) {
  return end_of_rank(request, launch, std::string("error: ") + error.what(), exit_code);
}

}  // namespace

std::vector<OptionSpec> calibrate_options() {
  return {
      {{"--ranks"},
       "ranks",
       "LIST",
       "numbers of ranks at work, such as 1,2 (default 1, 2, 4 ... processors)"},
      {{"--types"}, "types", "LIST", "types to measure (default fp32,bf16,fp16)"},
      {{"--repeats"},
       "repeats",
       "N",
       "rounds through everything that is measured (default 3; 1 with --quick)"},
      {{"--quick"}, "quick", "", "few and small sizes, in seconds; good to try, not to predict with"},
  };
}

Answer calibrate(const Request& request) {
  const Launch launch = executor::detect_launch(executor::environment_variable, executor::has_mpi_module());
  const Settings settings = read_settings(request, launch);
  const bool speaks = launch.rank == 0;
  const reports::RunEnvironment environment = run_environment(request.words);
  describe::Device device;
  device.name = "calibrated-cpu";
  device.title = fmt::format("{}, measured {} by zeroplan {} ({})", environment.processor,
                             environment.started, version(), commit());
  device.architecture = "host";
  device.capacity.from_host_memory = true;
  try {
    executor::make_device("cpu", {.threads = 1});
    device.overheads.context_bytes =
        describe::Figure{static_cast<double>(executor::resident_bytes()),
                         "resident set of zeroplan with its device, before the first tensor",
                         {},
                         false};
    const Calibration calibration(settings, launch, speaks ? request.progress : nullptr, device);
    run_as_launched(launch, settings.counts.back(), kLongestWait, run_identity(request, launch),
                    request.progress, [&](Communicator& world) { calibration.run_counts(world); });
  } catch (const executor::NotPossible& error) {
    return failed(request, launch, error, kNotPossible);
  } catch (const executor::DeviceError& error) {
    return failed(request, launch, error, kRunFailed);
  } catch (const executor::CommunicationError& error) {
    return failed(request, launch, error, kRunFailed);
  }
  if (!speaks) return Answer{{}, kYes, true};
  device.memory_measured_gbytes_per_s = streaming_rate(device, program::Op::copy);
  device.host_to_device_gbytes_per_s = streaming_rate(device, program::Op::copy_to_device);
  add_products(device);
  return {reports::calibration_report({version(), device, environment}), kYes};
}

}  // namespace zeroplan::cli
