#include "reports/fit_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "planner/program/step_program.hpp"
#include "reports/command_line.hpp"
#include "reports/inputs.hpp"
#include "reports/numbers.hpp"
#include "reports/verdict.hpp"
#include "reports/writers.hpp"

namespace zeroplan::reports {
namespace {

using predict::Prediction;
using program::GroupKind;

constexpr std::size_t kCommentWidth = 94;
constexpr double kTera = 1e12;
constexpr std::size_t kLiveBuffersShown = 6;
constexpr Bytes kNotShown = 5 * kMiB;  // would be printed as 0.00 GiB

constexpr std::array<std::string_view, program::kCategories> kCategoryTitles{
    "parameters",      "gradients", "optimizer state", "activations", "activation checkpoints",
    "gathered layers", "buckets",   "logits",          "workspace"};

double fraction_of(Bytes part, Bytes whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::vector<Cell> memory_row(std::string name, Bytes bytes, Bytes capacity) {
  const auto value = static_cast<double>(bytes);
  return {std::move(name), Gibibytes{value}, Gigabytes{value}, Percent{fraction_of(bytes, capacity)}};
}

Table memory_table(const Prediction& prediction) {
  Table table{{{"Memory per GPU at the peak", false}, {"GiB"}, {"GB"}, {"% of capacity"}}, {}, {}};
  for (std::size_t i = 0; i < program::kCategories; ++i) {
    const Bytes bytes = prediction.memory.at_peak[i];
    if (bytes > kNotShown)
      table.rows.push_back(memory_row(std::string(kCategoryTitles[i]), bytes, prediction.capacity_bytes));
  }
  for (const predict::OverheadTerm& term : prediction.overheads) {
    table.rows.push_back(memory_row("overhead: " + spaced(term.name), term.bytes, prediction.capacity_bytes));
  }
  table.rules_before = {table.rows.size()};
  table.rows.push_back(memory_row("peak", prediction.peak_bytes, prediction.capacity_bytes));
  table.rows.push_back(memory_row("capacity: " + prediction.capacity_basis, prediction.capacity_bytes,
                                  prediction.capacity_bytes));
  table.rows.push_back(
      memory_row("left", prediction.capacity_bytes - prediction.peak_bytes, prediction.capacity_bytes));
  return table;
}

std::string peak_sentence(const Prediction& prediction) {
  const predict::Place& place = prediction.memory.place;
  const program::StepProgram& step = prediction.program;
  const program::Instruction& acquire = step.code[place.instruction];
  std::string text = fmt::format("The peak is in {}", program::name_of(place.phase));
  if (place.layer >= 0) text += fmt::format(", layer {}", place.layer);
  text += fmt::format(", before {}", program::name_of(step.code[place.serves].op));
  if (acquire.operands[0].buffer != program::kNoBuffer) {
    text += fmt::format(", where \"{}\" is acquired", step.buffers[acquire.operands[0].buffer].name);
  }
  return text + ".";
}

Table live_table(const Prediction& prediction) {
  Table table{{{"Largest buffers then", false}, {"category", false}, {"instances"}, {"GiB"}}, {}, {}};
  const std::vector<predict::LiveBuffer> live = predict::live_at_peak(prediction.program, prediction.memory);
  Bytes rest = 0;
  for (std::size_t i = 0; i < live.size(); ++i) {
    const program::Buffer& buffer = prediction.program.buffers[live[i].buffer];
    if (i < kLiveBuffersShown) {
      table.rows.push_back({std::string(buffer.name), std::string(program::name_of(buffer.category)),
                            live[i].instances, Gibibytes{static_cast<double>(live[i].bytes)}});
    } else {
      rest += live[i].bytes;
    }
  }
  if (rest > 0) {
    table.rows.push_back({counted(static_cast<std::int64_t>(live.size() - kLiveBuffersShown), "more buffer"),
                          std::string(), std::monostate{}, Gibibytes{static_cast<double>(rest)}});
  }
  return table;
}

void add_host(std::vector<Block>& blocks, const Prediction& prediction, const describe::Device& device) {
  if (prediction.host_bytes_per_node == 0) return;
  Table table{{{"Host memory", false}, {"GiB"}, {"GB"}}, {}, {}};
  const auto row = [&](std::string name, Bytes bytes) {
    const auto value = static_cast<double>(bytes);
    table.rows.push_back({std::move(name), Gibibytes{value}, Gigabytes{value}});
  };
  row("per GPU", prediction.host_bytes_per_device);
  row("per node", prediction.host_bytes_per_node);
  if (prediction.host_capacity_bytes) {
    const bool shared = device.capacity.from_host_memory;
    row(shared ? "left beside the ranks" : "a node has", *prediction.host_capacity_bytes);
  }
  blocks.emplace_back(std::move(table));
}

std::string group_title(GroupKind kind) { return spaced(std::string(program::name_of(kind))); }

Table traffic_table(const Prediction& prediction) {
  Table table{{{"Traffic per GPU and step", false},
               {"collective", false},
               {"phase", false},
               {"calls"},
               {"GB sent"},
               {"Psi"}},
              {},
              {}};
  for (const GroupKind family : program::kGroupFamilies) {
    std::size_t lines = 0;
    for (const predict::TrafficEntry& entry : prediction.traffic.entries) {
      if (family_of(entry.group) != family) continue;
      ++lines;
      table.rows.push_back({group_title(entry.group), std::string(program::name_of(entry.collective)),
                            std::string(program::name_of(entry.phase)), Real{entry.calls, 0},
                            Gigabytes{entry.sent_bytes}, std::monostate{}});
    }
    if (lines == 0) continue;
    const bool is_data = family == program::kGroupFamilies.front();
    table.rules_before.push_back(table.rows.size());
    table.rows.push_back({group_title(family), std::string("all"), std::string(), std::monostate{},
                          Gigabytes{prediction.traffic.sent_bytes(family)},
                          is_data ? Cell(Real{prediction.traffic_psi, 2}) : Cell()});
  }
  if (prediction.traffic.to_host_bytes > 0 || prediction.traffic.to_device_bytes > 0) {
    table.rows.push_back({std::string("host"), std::string("device to host"), std::string(), std::monostate{},
                          Gigabytes{prediction.traffic.to_host_bytes}, std::monostate{}});
    table.rows.push_back({std::string("host"), std::string("host to device"), std::string(), std::monostate{},
                          Gigabytes{prediction.traffic.to_device_bytes}, std::monostate{}});
  }
  return table;
}

std::string flops_sentence(const predict::Work& work) {
  return fmt::format(
      "Compute per GPU and step: {:.2f} TFLOP of the model, {:.2f} TFLOP with what is computed again.",
      work.model / kTera, work.hardware / kTera);
}

void add_suggestions(std::vector<Block>& blocks, const FitAnswer& answer) {
  if (!answer.prediction.does_not_fit()) return;
  if (answer.suggestions.empty()) {
    blocks.emplace_back(Paragraph{"No change that was tried makes it fit."});
    return;
  }
  const bool one_is_sure =
      std::any_of(answer.suggestions.begin(), answer.suggestions.end(),
                  [](const solve::Suggestion& change) { return change.missing.empty(); });
  blocks.emplace_back(Heading{one_is_sure ? "The cheapest changes that make it fit"
                                          : "The cheapest changes that may make it fit"});
  Commands commands;
  for (const solve::Suggestion& suggestion : answer.suggestions) {
    const auto gib = [](Bytes bytes) { return static_cast<double>(bytes) / static_cast<double>(kGiB); };
    std::string comment =
        fmt::format("{}: {:.2f} GiB; {}", suggestion.what, gib(suggestion.peak_bytes), suggestion.cost);
    if (suggestion.host_bytes_per_node > 0) {
      comment += fmt::format("; {:.1f} GiB of host memory a node", gib(suggestion.host_bytes_per_node));
    }
    for (const predict::Missing& item : suggestion.missing) {
      comment += item.key == predict::kShape ? "; of the states alone"
                                             : "; fits if a node has that, which is not described";
    }
    for (const std::string& line : wrapped_lines(comment, kCommentWidth))
      commands.lines.push_back("# " + line);
    commands.lines.push_back(
        command_line("fit", answer.model_argument, answer.hardware_argument, suggestion.options));
  }
  blocks.emplace_back(std::move(commands));
}

}  // namespace

Report fit_report(const FitAnswer& answer) {
  const Prediction& prediction = answer.prediction;
  Report report;
  report.data = fit_data(answer);
  std::vector<Block>& blocks = report.blocks;
  add_inputs(blocks, answer.model, answer.resolved);
  add_verdict(blocks, prediction);
  if (prediction.program.states_only) {
    blocks.emplace_back(
        Paragraph{"Only the number of parameters is known, so this is memory of the model states and their "
                  "traffic only; activations and time are not in it."});
  }
  blocks.emplace_back(memory_table(prediction));
  blocks.emplace_back(Paragraph{peak_sentence(prediction)});
  blocks.emplace_back(live_table(prediction));
  add_host(blocks, prediction, answer.resolved.cluster.device);
  Table moved = traffic_table(prediction);
  if (moved.rows.empty()) {
    blocks.emplace_back(Paragraph{"Nothing moves between GPUs."});
  } else {
    blocks.emplace_back(std::move(moved));
  }
  if (!prediction.program.states_only) {
    blocks.emplace_back(Paragraph{flops_sentence(prediction.work)});
    add_speed(blocks, answer.timed());
  }
  add_suggestions(blocks, answer);
  add_assumptions(blocks, answer.model, answer.resolved);
  return report;
}

}  // namespace zeroplan::reports
