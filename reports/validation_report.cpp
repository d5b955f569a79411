#include "reports/validation_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "reports/device_memory.hpp"
#include "reports/gpu_samples.hpp"
#include "reports/inputs.hpp"
#include "reports/measured_traffic.hpp"
#include "reports/numbers.hpp"
#include "reports/validation_stream.hpp"
#include "reports/validation_tables.hpp"

namespace zeroplan::reports {
namespace {

using program::Measurement;
using program::StepMeasurement;
using Kind = ComparedFigure::Kind;

constexpr double kGiga = 1e9;
constexpr double kTera = 1e12;

std::string_view unit_of(Kind kind) {
  switch (kind) {
    case Kind::bytes:
      return "bytes";
    case Kind::count:
      return "calls";
    case Kind::flops:
      return "flop";
    case Kind::real:
      return "";
  }
  return {};
}

// Whether the run is on such devices as the plan is for: processors, or GPUs.
bool is_of_its_kind(const FitAnswer& fit, const Measurement& measurement) {
  return fit.resolved.cluster.device->capacity.from_host_memory != ran_on_gpus(measurement);
}

// Predicted times are of the machine that --hw names, measured ones of this one.
std::vector<ComparedTime> times_here(const FitAnswer& fit, const Measurement& measurement) {
  if (!is_of_its_kind(fit, measurement)) return {};
  return compare_times(fit.prediction, measurement);
}

Data figure_data(const ComparedFigure& figure) {
  return Data::map()
      .set("key", figure.key)
      .set("title", figure.title)
      .set("unit", unit_of(figure.kind))
      .set("predicted", figure.predicted)
      .set("measured", figure.measured)
      .set("difference", figure.difference())
      .set("tolerance_below", figure.tolerance_below)
      .set("tolerance_above", figure.tolerance_above)
      .set("ok", figure.ok());
}

Data comparison_data(const Comparison& comparison) {
  Data list = Data::list();
  for (const ComparedFigure& figure : comparison.figures) list.add(figure_data(figure));
  for (const ComparedText& text : comparison.texts) {
    list.add(Data::map()
                 .set("key", text.key)
                 .set("title", text.title)
                 .set("unit", "text")
                 .set("predicted", text.predicted)
                 .set("measured", text.measured)
                 .set("difference", Data())
                 .set("tolerance_below", Data())
                 .set("tolerance_above", Data())
                 .set("ok", text.ok()));
  }
  return list;
}

Data compared_times_data(const std::vector<ComparedTime>& times) {
  Data list = Data::list();
  for (const ComparedTime& time : times) {
    list.add(Data::map()
                 .set("key", time.key)
                 .set("title", time.title)
                 .set("unit", time.is_share ? "share" : "s")
                 .set("predicted", time.predicted)
                 .set("measured", time.measured)
                 .set("relative_error", time.relative_error()));
  }
  return list;
}

Data steps_data(const Measurement& measurement) {
  Data list = Data::list();
  for (const StepMeasurement& step : measurement.steps) list.add(step_data(step));
  return list;
}

Data ranks_data(const Measurement& measurement) {
  Data list = Data::list();
  for (const program::RankMeasurement& rank : measurement.of_rank) {
    list.add(Data::map()
                 .set("peak_bytes", rank.device_peak_bytes)
                 .set("reserved_bytes", rank.device_block_bytes)
                 .set("by_category_bytes", category_data(rank.at_device_peak))
                 .set("host_peak_bytes", rank.host_peak_bytes)
                 .set("workspace_bytes", rank.workspace_bytes)
                 .set("zone_bytes", rank.device_zone_bytes)
                 .set("gpu", gpu_samples_data(rank.gpu))
                 .set("process_growth_bytes", rank.process_growth_bytes)
                 .set("product_flops", rank.product_flops));
  }
  return list;
}

Data times_data(const Measurement& measurement) {
  Data list = Data::list();
  for (const program::InstructionTime& time : measurement.times) {
    list.add(Data::map()
                 .set("instruction", program::name_of(time.op))
                 .set("group", time.group ? Data(program::name_of(*time.group)) : Data())
                 .set("calls", time.calls)
                 .set("seconds", time.seconds)
                 .set("waiting_seconds", time.waiting_seconds));
  }
  return list;
}

Data measurement_data(const FitAnswer& fit, const Measurement& measurement) {
  const predict::Prediction& prediction = fit.prediction;
  const MeasuredSpeed speed = measured_speed(prediction, measurement);
  return Data::map()
      .set("device", measurement.device)
      .set("note", measurement.note.empty() ? Data() : Data(measurement.note))
      .set("gpu_note", measurement.gpu_note.empty() ? Data() : Data(measurement.gpu_note))
      .set("launch", measurement.launch)
      .set("exchange", measurement.exchange.empty() ? Data() : Data(measurement.exchange))
      .set("ranks_of_device", measurement.ranks_of_device)
      .set("batches", measurement.batches)
      .set("ranks", measurement.ranks)
      .set("step_seconds", speed.step_seconds)
      .set("fastest_step_seconds", speed.fastest_seconds)
      .set("slowest_step_seconds", speed.slowest_seconds)
      .set("tokens_per_second", speed.tokens_per_second)
      .set("model_tflops_per_gpu", speed.model_tflops)
      .set("hardware_tflops_per_gpu", speed.hardware_tflops)
      .set("tokens_per_step", prediction.program().tokens_per_step)
      .set("steps_taken", measurement.steps.taken())
      .set("steps_measured", measurement.steps.measured())
      .set("steps_kept_every", measurement.steps.kept_every())
      .set("steps", steps_data(measurement))
      .set("slowest_gpu", slowest_gpu_data(measurement))
      .set("traffic", traffic_data(prediction, fit.resolved.cluster, measurement))
      .set("device_memory", device_memory_data(device_memory(prediction, measurement)))
      .set("of_rank", ranks_data(measurement))
      .set("instructions", times_data(measurement));
}

Data environment_data(const RunEnvironment& environment) {
  return Data::map()
      .set("processor", environment.processor)
      .set("logical_cpus", environment.logical_cpus)
      .set("memory_bytes", environment.memory_bytes)
      .set("system", environment.system)
      .set("compiler", environment.compiler)
      .set("commit", environment.commit)
      .set("started", environment.started)
      .set("command", environment.command);
}

// What the prediction has of a machine that the run was not on.
std::vector<std::string> not_measured(const FitAnswer& fit, const Measurement* measurement) {
  const bool is_measured = measurement == nullptr ? fit.resolved.cluster.device->capacity.from_host_memory
                                                  : is_of_its_kind(fit, *measurement);
  if (is_measured) return {};
  std::vector<std::string> list;
  for (const predict::OverheadTerm& term : fit.prediction.overheads) list.push_back(spaced(term.name));
  list.emplace_back("the time of a step");
  return list;
}

Data not_measured_data(const FitAnswer& fit, const Measurement* measurement) {
  Data list = Data::list();
  for (std::string& name : not_measured(fit, measurement)) list.add(std::move(name));
  return list;
}

std::string yes_text(const FitAnswer& fit, const Measurement* measurement) {
  const std::vector<std::string> left_out = not_measured(fit, measurement);
  if (left_out.empty()) return "yes: every figure is within its tolerance.";
  return fmt::format(
      "yes, as far as {} can say: buffers, traffic and products are within their tolerances; of {} these "
      "were "
      "not measured: {}.",
      measurement != nullptr && ran_on_gpus(*measurement) ? "GPUs" : "processors",
      fit.resolved.cluster.device->name, fmt::join(left_out, ", "));
}

std::string verdict_text(const ValidationAnswer& answer, const Comparison& comparison) {
  switch (answer.outcome) {
    case RunOutcome::predicted:
      return "Predicted; not run yet.";
    case RunOutcome::agrees:
      return yes_text(answer.prediction, answer.measurement);
    case RunOutcome::differs: {
      std::vector<std::string> reasons;
      std::string names;
      for (const ComparedFigure& figure : comparison.figures) {
        if (!figure.ok()) names += (names.empty() ? "" : ", ") + spaced(figure.title);
      }
      if (!names.empty()) reasons.push_back("not within its tolerance: " + names);
      for (const ComparedText& text : comparison.texts) {
        if (!text.ok()) reasons.push_back(fmt::format("{}: {}", text.title, text.measured));
      }
      return fmt::format("no: {}.", fmt::join(reasons, "; "));
    }
    case RunOutcome::not_possible:
      return fmt::format("not run: {}", answer.reason);
    case RunOutcome::failed:
      return fmt::format("failed: {}", answer.reason);
    case RunOutcome::interrupted:
      return fmt::format("interrupted: {}; what was measured until then:", answer.reason);
  }
  return {};
}

// The words that were compared: where the peak is, and what held of the run.
std::string text_of(const ComparedText& place) {
  if (place.key != "memory.peak_at") return fmt::format("Of the run, {}: {}.", place.title, place.measured);
  if (place.ok()) return fmt::format("The peak was predicted and is in {}.", place.predicted);
  return fmt::format("The peak was predicted in {} and is in {}.", place.predicted, place.measured);
}

// What moves data between devices, and what it means for times where those are one.
std::string exchange_text(const Measurement& measurement) {
  if (measurement.exchange.empty()) return {};
  std::string text = fmt::format("Between ranks: {}.", measurement.exchange);
  if (measurement.ranks_of_device > 1) {
    text += fmt::format(" The {} share one GPU: the times are not those of {}.",
                        counted(measurement.ranks_of_device, "rank"),
                        counted(measurement.ranks_of_device, "GPU"));
  }
  return text;
}

std::string memory_text(const predict::Prediction& prediction, const Measurement& measurement) {
  Bytes reserved = 0;
  Bytes workspace = 0;
  for (const program::RankMeasurement& rank : measurement.of_rank) {
    reserved = std::max(reserved, rank.device_block_bytes);
    workspace = std::max(workspace, rank.workspace_bytes);
  }
  const Bytes held = prediction.memory().peak;
  std::string text = fmt::format("Asked from the device for buffers: {} bytes", thousands(reserved));
  if (reserved > held) {
    text += fmt::format(", {:.1f} % more than is held at the peak: fragmentation",
                        100 * static_cast<double>(reserved - held) / static_cast<double>(held));
  }
  if (!measurement.of_rank.empty() && measurement.of_rank.front().device_zone_bytes > 0) {
    text += fmt::format("; {} bytes between them that nobody may write, while memory is observed",
                        thousands(measurement.of_rank.front().device_zone_bytes));
  }
  return text + fmt::format("; scratch of the device beside them: {} bytes.", thousands(workspace));
}

}  // namespace

std::string_view name_of(RunOutcome outcome) {
  static constexpr std::array<std::string_view, 6> kNames{"predicted",    "agrees", "differs",
                                                          "not_possible", "failed", "interrupted"};
  return kNames[static_cast<std::size_t>(outcome)];
}

Report validation_report(const ValidationAnswer& answer) {
  const FitAnswer& fit = answer.prediction;
  const predict::Prediction& prediction = fit.prediction;
  Comparison comparison;
  std::vector<ComparedTime> times;
  if (answer.measurement != nullptr) {
    comparison = compare(prediction, *answer.measurement);
    times = times_here(fit, *answer.measurement);
  }
  Report report;
  const Data predicted = fit_data(fit);
  report.data = Data::map()
                    .set("schema", "zeroplan.validation/1")
                    .set("version", fit.version)
                    .set("outcome", name_of(answer.outcome))
                    .set("reason", answer.reason.empty() ? Data() : Data(answer.reason))
                    .set("environment", environment_data(answer.environment))
                    .set("inputs", *predicted.find("inputs"))
                    .set("approximations", *predicted.find("approximations"))
                    .set("assumed", *predicted.find("assumed"))
                    .set("notes", *predicted.find("notes"))
                    .set("predicted", *predicted.find("result"))
                    .set("measured",
                         answer.measurement == nullptr ? Data() : measurement_data(fit, *answer.measurement))
                    .set("comparison", comparison_data(comparison))
                    .set("not_measured", not_measured_data(fit, answer.measurement))
                    .set("times", compared_times_data(times));
  report.rows = "comparison";

  std::vector<Block>& blocks = report.blocks;
  add_inputs(blocks, fit.model, fit.resolved);
  if (answer.measurement != nullptr) {
    const Measurement& measurement = *answer.measurement;
    blocks.emplace_back(Paragraph{fmt::format(
        "Run: {} as {} on {}; {}; tokens from {}.", counted(measurement.ranks, "rank"), measurement.launch,
        measurement.device, answer.environment.processor, measurement.batches)});
    if (const std::string text = exchange_text(measurement); !text.empty())
      blocks.emplace_back(Paragraph{text});
    if (!measurement.note.empty()) blocks.emplace_back(Paragraph{measurement.note});
    blocks.emplace_back(Paragraph{verdict_text(answer, comparison)});
    blocks.emplace_back(comparison_table(report.data));
    if (const Data* gpu = report.data.find("measured.slowest_gpu"); !gpu->is_null()) {
      blocks.emplace_back(Paragraph{clocks_text(*gpu)});
    } else if (!measurement.gpu_note.empty()) {
      blocks.emplace_back(
          Paragraph{fmt::format("The GPU's clocks are not known: {}.", measurement.gpu_note)});
    }
    if (!times.empty()) {
      blocks.emplace_back(compared_times_table(report.data));
    } else if (not_measured(fit, &measurement).empty()) {
      blocks.emplace_back(
          Paragraph{"The time of a step is not predicted: zeroplan calibrate measures this machine, and --hw "
                    "takes what "
                    "it writes."});
    }
    for (const ComparedText& place : comparison.texts) blocks.emplace_back(Paragraph{text_of(place)});
    blocks.emplace_back(Paragraph{memory_text(prediction, measurement)});
    if (const Data* lines = report.data.find("measured.device_memory"); !lines->is_null()) {
      blocks.emplace_back(device_memory_table(*lines->as<Data::List>()));
    }
    if (const Data::List& traffic = list_at(report.data, "measured.traffic"); !traffic.empty()) {
      blocks.emplace_back(traffic_table(traffic));
    }
    blocks.emplace_back(steps_table(report.data));
    blocks.emplace_back(instructions_table(report.data));
  } else {
    blocks.emplace_back(Paragraph{verdict_text(answer, comparison)});
    blocks.emplace_back(Paragraph{prediction_line(prediction, fit.resolved.plan)});
  }
  add_assumptions(blocks, fit.model, fit.resolved);
  return report;
}

std::string step_text(const predict::Prediction& prediction, const StepMeasurement& step,
                      std::int64_t last_step) {
  const double tokens = static_cast<double>(prediction.program().tokens_per_step);
  std::string line = fmt::format(
      "step {}/{}  loss {:.4f}  norm {:.4f}  rate {:g}  {:.1f} ms  {:.0f} tokens/s  {:.4f} TFLOPS  peak "
      "{:.2f} GiB",
      step.step, last_step, step.loss, step.gradient_norm, step.learning_rate, step.seconds * 1e3,
      tokens / step.seconds, prediction.work().model / step.seconds / kTera,
      static_cast<double>(step.peak_bytes) / static_cast<double>(kGiB));
  if (step.skipped) line += fmt::format("  skipped: overflow at scale {:g}", step.loss_scale);
  if (step.warm_up) line += "  (warm-up)";
  return line;
}

std::string prediction_line(const predict::Prediction& prediction, const describe::Plan& plan) {
  const auto gibibytes = [](Bytes bytes) { return static_cast<double>(bytes) / static_cast<double>(kGiB); };
  return fmt::format(
      "Predicted per GPU: peak {:.3f} GiB of buffers, host {:.3f} GiB, sent {:.3f} GB data parallel and "
      "{:.3f} GB "
      "tensor parallel a step, {:.3f} TFLOP; {}.",
      gibibytes(prediction.memory().peak), gibibytes(prediction.memory().host_peak),
      prediction.traffic().data_parallel_bytes() / kGiga,
      prediction.traffic().tensor_parallel_bytes() / kGiga, prediction.work().hardware / kTera,
      counted(plan.devices(), "rank"));
}

}  // namespace zeroplan::reports
