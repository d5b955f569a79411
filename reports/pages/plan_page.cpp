#include "reports/pages/plan_page.hpp"

#include <fmt/format.h>

#include "reports/fit_tables.hpp"
#include "reports/inputs.hpp"
#include "reports/numbers.hpp"
#include "reports/pages/sections.hpp"
#include "reports/speed.hpp"
#include "reports/verdict.hpp"

namespace zeroplan::reports {
namespace {

// The verdict, then what it takes: one sentence that a reader who knows no ZeRO understands.
std::string answer_of(const PlanPage& page, const Data& result) {
  std::string text = verdict_sentence(page.fit.prediction);
  const double step = number_at(result, kStepSeconds);
  if (step > 0) {
    text += fmt::format(" A step takes {:.3g} s, {} tokens a second on {}", step,
                        thousands(static_cast<std::int64_t>(number_at(result, "tokens_per_second"))),
                        counted(page.fit.resolved.cluster.devices(), "GPU"));
    if (const double days = number_at(result, "training.days"); days > 0)
      text += fmt::format("; the training {:.3g} days", days);
    if (const double cost = number_at(result, "training.cost"); cost > 0)
      text += fmt::format(" and {:.4g} in money", cost);
    text += ".";
  }
  return text;
}

void add_traffic(std::vector<Block>& blocks, const Data& result) {
  Table moved = traffic_table(result);
  blocks.emplace_back(Heading{"Traffic"});
  if (moved.rows.empty()) {
    blocks.emplace_back(Paragraph{"Nothing moves between GPUs."});
    return;
  }
  blocks.emplace_back(std::move(moved));
  blocks.emplace_back(
      Paragraph{"Psi is the number of parameters: plain data parallelism sends 2 Psi elements a step, ZeRO-3 "
                "sends 3 (ZeRO, arXiv "
                "1910.02054, Section 7)."});
}

void add_symbols(std::vector<Block>& blocks) {
  blocks.emplace_back(Heading{"Words"});
  Table table{{{"word", false}, {"what it is", false}}, {}, {}};
  const auto add = [&](const char* word, const char* what) {
    table.rows.push_back({std::string(word), std::string(what)});
  };
  add("ZeRO-1, 2, 3",
      "optimizer states, then gradients, then parameters are divided over the data-parallel GPUs instead of "
      "being on each");
  add("optimizer state",
      "the fp32 copy of the weights, momentum and variance: 12 bytes a parameter with Adam");
  add("activation", "what the forward pass keeps for the backward pass");
  add("checkpoint", "a layer's input, kept where its activations are computed a second time (recomputation)");
  add("gathered", "a layer's whole weights while it is computed, under ZeRO-3");
  add("bucket", "gradients on their way to the GPU that owns them");
  add("overhead", "what CUDA, its libraries and communicators take beside the model");
  add("exposed", "time that the step waits for something, not hidden behind other work");
  add("MFU", "model FLOPs utilization: the model's FLOPs by those that the GPU's peak would do");
  add("GiB, GB", "2^30 bytes, 1e9 bytes");
  blocks.emplace_back(std::move(table));
}

}  // namespace

Data plan_page_data(const PlanPage& page) {
  Data data = Data::map();
  data.set("schema", "zeroplan.report/1")
      .set("version", page.fit.version)
      .set("commit", page.commit)
      .set("command", page.command);
  Data fit = fit_data(page.fit);
  for (const char* key : {"inputs", "approximations", "assumed", "notes", "result"})
    data.set(key, *fit.find(key));
  return data.set("memory", memory_data(page))
      .set("time", time_data(page, *fit.find("result")))
      .set("what_if", what_if_data(page))
      .set("owned", owned_data(page));
}

Report plan_page(const PlanPage& page) {
  Report report;
  report.data = plan_page_data(page);
  const Data& result = *report.data.find("result");
  std::vector<Block>& blocks = report.blocks;
  const FitAnswer& fit = page.fit;
  blocks.emplace_back(Headline{fmt::format("{} on {}", fit.model.name, machine_line(fit.resolved.cluster)),
                               answer_of(page, result),
                               std::string(predict::name_of(fit.prediction.verdict))});
  add_inputs(blocks, fit.model, fit.resolved);
  for (const predict::Missing& item : fit.prediction.missing)
    blocks.emplace_back(Paragraph{fmt::format("Missing: {}. To give it: {}.", item.key, item.how)});
  if (fit.prediction.does_not_fit()) add_suggestions(blocks, list_at(result, "suggestions"));
  add_memory(blocks, page, report.data);
  blocks.emplace_back(memory_table(result));
  blocks.emplace_back(Paragraph{peak_sentence(*result.find("peak_at"))});
  blocks.emplace_back(live_table(list_at(result, "alive_at_peak")));
  add_host(blocks, result, fit.resolved.cluster.device);
  add_owned(blocks, report.data);
  add_traffic(blocks, result);
  if (!fit.prediction.program().states_only) {
    blocks.emplace_back(Heading{"Time"});
    add_time(blocks, report.data);
    blocks.emplace_back(Paragraph{flops_sentence(result)});
    add_speed(blocks, fit.predicted(), result);
  }
  add_what_if(blocks, report.data);
  add_symbols(blocks);
  blocks.emplace_back(Heading{"What this rests on"});
  add_assumptions(blocks, fit.model, fit.resolved);
  blocks.emplace_back(Paragraph{
      fmt::format("Made by zeroplan {}, commit {}. The same page again:", fit.version, page.commit)});
  blocks.emplace_back(Commands{{std::string(page.command)}});
  return report;
}

}  // namespace zeroplan::reports
