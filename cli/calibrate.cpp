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
#include "cli/help.hpp"
#include "cli/ranks.hpp"
#include "executor/calibration/probe.hpp"
#include "executor/error.hpp"
#include "executor/modules.hpp"
#include "executor/process_memory.hpp"
#include "planner/calibrate/probes.hpp"
#include "planner/calibrate/rates.hpp"
#include "planner/describe/quantity.hpp"
#include "planner/error.hpp"
#include "planner/predict/memory.hpp"
#include "reports/calibration_report.hpp"
#include "reports/numbers.hpp"

namespace zeroplan::cli {
namespace {

using describe::Precision;
using executor::Communicator;
using executor::Launch;

constexpr std::int64_t kMostRepeats = 1000, kMostRanks = 1024;
constexpr std::int64_t kRepeats = 5, kQuickRepeats = 3;
constexpr std::chrono::minutes kLongestWait{60};  // ranks that are not at work wait for those that are
constexpr double kGiga = 1e9, kTera = 1e12;

struct Settings {
  std::vector<std::int64_t> counts;  // of ranks at work, ascending
  std::vector<Precision> types;
  std::int64_t repeats = kRepeats;
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
  if (settings.extent.quick) settings.repeats = kQuickRepeats;
  settings.types = read_types(given("types").value_or("fp32,bf16,fp16"), problems);
  if (const auto list = given("ranks")) {
    settings.counts = read_counts(*list, launch, problems);
  } else {
    const auto processors = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
    settings.counts = usual_counts(launch.kind == Launch::Kind::threads ? processors : launch.ranks);
  }
  if (const auto repeats = given("repeats")) {
    try {
      settings.repeats = describe::parse_integer(*repeats, 1, kMostRepeats);
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

  void run(Communicator& world) const {
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

  void with_ranks(Communicator& group) const {
    const program::GroupInfo ranks{group.size(), group.rank()};
    calibrate::KernelTables tables;
    for (const Precision precision : settings_.types) {
      for (const calibrate::Probe& probe : calibrate::kernel_probes(precision, ranks, settings_.extent)) {
        tables.add(probe, times(probe, group));
      }
      if (group.size() == 1) continue;
      const calibrate::Probe probe = calibrate::collective_probe(precision, ranks, settings_.extent);
      const auto of_collectives =
          calibrate::collective_tables(probe, times(probe, group), source(ranks.size));
      if (group.rank() != 0) continue;
      device_.attained_collectives.insert(device_.attained_collectives.end(), of_collectives.begin(),
                                          of_collectives.end());
    }
    double skew = 0;
    if (group.size() > 1) {
      const calibrate::Probe probe = calibrate::skew_probe(ranks, settings_.extent);
      skew = calibrate::skew_of(probe, times(probe, group));
    }
    if (group.rank() == 0) device_.calibrated.push_back(tables.rates(ranks.size, source(ranks.size), skew));
  }

  calibrate::Repeats times(const calibrate::Probe& probe, Communicator& group) const {
    if (group.rank() == 0 && progress_ != nullptr) {
      *progress_ << fmt::format("zeroplan: {}: {}", reports::counted(group.size(), "rank"), probe.what)
                 << std::endl;
    }
    const predict::MemoryProfile memory = predict::read_memory(probe.program);
    executor::Probe run;
    run.plan = {probe.program, {memory.peak, memory.host_peak, true}};
    run.batches.sequence = probe.sequence;
    run.batches.micro_batch = probe.micro_batch;
    run.batches.gradient_accumulation = probe.gradient_accumulation;
    run.batches.data_parallel = group.size();
    run.vocabulary = probe.vocabulary;
    // A model's step has each kernel several times.
    run.repeats = probe.is_grid ? settings_.repeats : (settings_.repeats + 1) / 2;
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
    return std::move(result.repeats);
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
    product.dtype =
        program::name_of(static_cast<program::DataType>(kernel.kind.types & describe::kAbsentType));
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
Answer failed(const Request& request, const std::exception& error, int exit_code) {
  if (request.progress != nullptr) *request.progress << "zeroplan: error: " << error.what() << std::endl;
  return Answer{{}, exit_code, true};
}

}  // namespace

std::vector<OptionSpec> calibrate_options() {
  return {
      {{"--ranks"},
       "ranks",
       "LIST",
       "numbers of ranks at work, such as 1,2 (default 1, 2, 4 ... processors)"},
      {{"--types"}, "types", "LIST", "types to measure (default fp32,bf16,fp16)"},
      {{"--repeats"}, "repeats", "N", "times that each is measured (default 5; 3 with --quick)"},
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
  device.title = fmt::format("{}, measured {}", environment.processor, environment.started);
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
    run_as_launched(launch, settings.counts.back(), kLongestWait,
                    [&](Communicator& world) { calibration.run(world); });
  } catch (const executor::NotPossible& error) {
    return failed(request, error, kNotPossible);
  } catch (const executor::DeviceError& error) {
    return failed(request, error, kRunFailed);
  } catch (const executor::CommunicationError& error) {
    return failed(request, error, kRunFailed);
  }
  if (!speaks) return Answer{{}, kYes, true};
  device.memory_measured_gbytes_per_s = streaming_rate(device, program::Op::copy);
  device.host_to_device_gbytes_per_s = streaming_rate(device, program::Op::copy_to_device);
  add_products(device);
  return {reports::calibration_report({version(), device, environment}), kYes};
}

}  // namespace zeroplan::cli
