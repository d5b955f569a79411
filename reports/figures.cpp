#include "reports/figures.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "planner/program/step_program.hpp"
#include "reports/speed.hpp"
#include "reports/verdict.hpp"

namespace zeroplan::reports {
namespace {

using predict::Prediction;

constexpr std::array<std::string_view, program::kCategories> kCategoryTitles{
    "parameters",      "gradients", "optimizer state", "activations", "activation checkpoints",
    "gathered layers", "buckets",   "logits",          "workspace"};

Data peak_at(const Prediction& prediction) {
  const predict::ProgramPoint& place = prediction.memory().place;
  const program::StepProgram& step = prediction.program();
  const program::BufferId acquired = step.code[place.instruction].operands[0].buffer;
  return Data::map()
      .set("phase", program::name_of(place.phase))
      .set("layer", place.layer < 0 ? Data() : Data(place.layer))
      .set("instruction", program::name_of(step.code[place.serves].op))
      .set("buffer", acquired == program::kNoBuffer ? Data() : Data(step.buffers[acquired].name));
}

Data alive_at_peak(const Prediction& prediction) {
  Data list = Data::list();
  for (const predict::LiveBuffer& live : predict::live_at_peak(prediction.program(), prediction.memory())) {
    const program::Buffer& buffer = prediction.program().buffers[live.buffer];
    list.add(Data::map()
                 .set("name", buffer.name)
                 .set("category", program::name_of(buffer.category))
                 .set("instances", live.instances)
                 .set("bytes", live.bytes));
  }
  return list;
}

Data overheads(const Prediction& prediction) {
  Data list = Data::list();
  for (const predict::OverheadTerm& term : prediction.overheads) {
    list.add(Data::map().set("name", term.name).set("bytes", term.bytes).set("source", term.source));
  }
  return list;
}

Data collectives(const Prediction& prediction) {
  Data list = Data::list();
  for (const predict::TrafficEntry& entry : prediction.traffic().entries) {
    list.add(Data::map()
                 .set("group", program::name_of(entry.group))
                 .set("collective", program::name_of(entry.collective))
                 .set("phase", program::name_of(entry.phase))
                 .set("calls", entry.calls)
                 .set("elements", entry.elements)
                 .set("bytes", entry.bytes)
                 .set("sent_bytes", entry.sent_bytes));
  }
  return list;
}

// A list of figures that are read from the prediction.
class List {
 public:
  void add(std::string key, std::string title, std::string unit, std::string what,
           std::function<Data(const Prediction&)> read) {
    figures_.push_back(
        {std::move(key), std::move(title), std::move(unit), std::move(what),
         [read = std::move(read)](const PredictedPlan& plan) { return read(plan.prediction); }});
  }
  // What is not one number.
  void add(std::string key, std::function<Data(const Prediction&)> read) {
    add(std::move(key), "", "", "", std::move(read));
  }
  std::vector<Figure> take() { return std::move(figures_); }

 private:
  std::vector<Figure> figures_;
};

void add_memory(List& list) {
  list.add("capacity_bytes", "capacity", "bytes", "what a program can use on a device",
           [](const Prediction& p) { return p.capacity_bytes; });
  list.add("capacity_basis", [](const Prediction& p) { return p.capacity_basis; });
  list.add("peak_bytes", "peak", "bytes", "the most memory a device holds, overhead included",
           [](const Prediction& p) { return p.peak_bytes; });
  list.add("peak_at", peak_at);
  list.add("alive_at_peak", alive_at_peak);
  for (std::size_t i = 0; i < program::kCategories; ++i) {
    const std::string name(program::name_of(static_cast<program::Category>(i)));
    list.add(std::string(kCategoryPrefix) + name, std::string(kCategoryTitles[i]), "bytes",
             "of this category, at the peak", [i](const Prediction& p) { return p.memory().at_peak[i]; });
  }
  list.add(std::string(kCategoryPrefix) + "overhead", "", "bytes",
           "what the runtime takes beside the program", [](const Prediction& p) { return p.overhead_bytes; });
  list.add("overheads", overheads);
  list.add("model_state_bytes", "model states", "bytes",
           "parameters, gradients and optimizer state held through the step",
           [](const Prediction& p) { return p.model_state_bytes; });
  list.add("host_bytes.per_gpu", "per GPU", "bytes", "host memory of one device",
           [](const Prediction& p) { return p.host_bytes_per_device; });
  list.add("host_bytes.per_node", "per node", "bytes", "host memory of a node",
           [](const Prediction& p) { return p.host_bytes_per_node; });
  list.add("host_bytes.capacity_per_node",
           [](const Prediction& p) { return p.host_capacity_bytes ? Data(*p.host_capacity_bytes) : Data(); });
}

void add_traffic(List& list) {
  list.add("traffic_bytes.data_parallel", "data parallel", "bytes",
           "sent by one rank in a step, data-parallel group",
           [](const Prediction& p) { return p.traffic().data_parallel_bytes(); });
  list.add("traffic_bytes.tensor_parallel", "tensor parallel", "bytes",
           "sent by one rank in a step, tensor-parallel group",
           [](const Prediction& p) { return p.traffic().tensor_parallel_bytes(); });
  list.add("traffic_bytes.device_to_host", "device to host", "bytes",
           "copied from a device to host memory in a step",
           [](const Prediction& p) { return p.traffic().to_host_bytes; });
  list.add("traffic_bytes.host_to_device", "host to device", "bytes",
           "copied from host memory to a device in a step",
           [](const Prediction& p) { return p.traffic().to_device_bytes; });
  list.add("traffic_bytes.collectives", collectives);
  list.add("traffic_psi", "", "multiples of Psi", "the ZeRO paper's measure of data-parallel traffic",
           [](const Prediction& p) { return p.traffic_psi; });
}

void add_flops(List& list) {
  list.add("flops.model", "", "FLOPs", "of one rank and step, without recomputation",
           [](const Prediction& p) { return p.work().model; });
  list.add("flops.hardware", "", "FLOPs", "of one rank and step, as executed",
           [](const Prediction& p) { return p.work().hardware; });
  list.add("flops.model_all_ranks", "", "FLOPs", "of all ranks",
           [](const Prediction& p) { return p.work().model_all_ranks; });
  list.add("flops.hardware_all_ranks", "", "FLOPs", "of all ranks, as executed",
           [](const Prediction& p) { return p.work().hardware_all_ranks; });
}

std::vector<Figure> make_figures() {
  List list;
  list.add("fits", [](const Prediction& p) {
    return p.verdict == predict::Verdict::cannot_say ? Data() : Data(p.fits());
  });
  list.add("verdict", [](const Prediction& p) { return predict::name_of(p.verdict); });
  list.add("verdict_reason", [](const Prediction& p) { return p.verdict_reason; });
  list.add("missing", [](const Prediction& p) { return missing_data(p.missing); });
  list.add("states_only", [](const Prediction& p) { return p.program().states_only; });
  add_memory(list);
  add_traffic(list);
  add_flops(list);
  std::vector<Figure> all = list.take();
  std::vector<Figure> speed = speed_figures();
  std::move(speed.begin(), speed.end(), std::back_inserter(all));
  return all;
}

}  // namespace

const std::vector<Figure>& figures() {
  static const std::vector<Figure> all = make_figures();
  return all;
}

const Figure& figure_of(std::string_view key) {
  return *std::find_if(figures().begin(), figures().end(),
                       [&](const Figure& figure) { return figure.key == key; });
}

Data figures_data(const PredictedPlan& plan) {
  Data data = Data::map();
  for (const Figure& figure : figures()) data.set_at(figure.key, figure.read(plan));
  return data;
}

Data category_data(const program::CategoryBytes& bytes) {
  Data data = Data::map();
  for (std::size_t i = 0; i < program::kCategories; ++i) {
    data.set(std::string(program::name_of(static_cast<program::Category>(i))), bytes[i]);
  }
  return data;
}

}  // namespace zeroplan::reports
