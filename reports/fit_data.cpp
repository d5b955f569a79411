#include "planner/program/step_program.hpp"
#include "reports/approximations.hpp"
#include "reports/command_line.hpp"
#include "reports/fit_report.hpp"
#include "reports/inputs.hpp"
#include "reports/verdict.hpp"

namespace zeroplan::reports {
namespace {

using predict::Prediction;

Data whole(std::string_view key, std::int64_t value) { return Data::map().set(std::string(key), value); }

Data peak_at(const Prediction& prediction) {
  const predict::Place& place = prediction.memory.place;
  const program::StepProgram& step = prediction.program;
  const program::Instruction& acquire = step.code[place.instruction];
  Data data = Data::map();
  data.set("phase", program::name_of(place.phase))
      .set("layer", place.layer < 0 ? Data() : Data(place.layer))
      .set("instruction", program::name_of(step.code[place.serves].op));
  const bool has_buffer = acquire.operands[0].buffer != program::kNoBuffer;
  data.set("buffer", has_buffer ? Data(step.buffers[acquire.operands[0].buffer].name) : Data());
  return data;
}

Data alive_at_peak(const Prediction& prediction) {
  Data list = Data::list();
  for (const predict::LiveBuffer& live : predict::live_at_peak(prediction.program, prediction.memory)) {
    const program::Buffer& buffer = prediction.program.buffers[live.buffer];
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

Data traffic(const predict::Traffic& traffic) {
  Data list = Data::list();
  for (const predict::TrafficEntry& entry : traffic.entries) {
    list.add(Data::map()
                 .set("group", program::name_of(entry.group))
                 .set("collective", program::name_of(entry.collective))
                 .set("phase", program::name_of(entry.phase))
                 .set("calls", entry.calls)
                 .set("elements", entry.elements)
                 .set("bytes", entry.bytes)
                 .set("sent_bytes", entry.sent_bytes));
  }
  return Data::map()
      .set("data_parallel", traffic.data_parallel_bytes())
      .set("tensor_parallel", traffic.tensor_parallel_bytes())
      .set("device_to_host", traffic.to_host_bytes)
      .set("host_to_device", traffic.to_device_bytes)
      .set("collectives", std::move(list));
}

Data flops(const predict::Work& work) {
  return Data::map()
      .set("model", work.model)
      .set("hardware", work.hardware)
      .set("model_all_ranks", work.model_all_ranks)
      .set("hardware_all_ranks", work.hardware_all_ranks);
}

Data suggestions(const FitAnswer& answer) {
  Data list = Data::list();
  for (const solve::Suggestion& suggestion : answer.suggestions) {
    list.add(Data::map()
                 .set("command", command_line("fit", answer.model_argument, answer.hardware_argument,
                                              suggestion.options))
                 .set("what", suggestion.what)
                 .set("cost", suggestion.cost)
                 .set("peak_bytes", suggestion.peak_bytes)
                 .set("capacity_bytes", suggestion.capacity_bytes)
                 .set("host_bytes_per_node", suggestion.host_bytes_per_node)
                 .set("missing", missing_data(suggestion.missing)));
  }
  return list;
}

}  // namespace

Data category_data(const program::CategoryBytes& bytes) {
  Data data = Data::map();
  for (std::size_t i = 0; i < program::kCategories; ++i) {
    data.set(std::string(program::name_of(static_cast<program::Category>(i))), bytes[i]);
  }
  return data;
}

Data fit_data(const FitAnswer& answer) {
  const Prediction& prediction = answer.prediction;
  Data result = Data::map();
  set_verdict(result, prediction);
  result.set("states_only", prediction.program.states_only)
      .set("capacity_bytes", prediction.capacity_bytes)
      .set("capacity_basis", prediction.capacity_basis)
      .set("peak_bytes", prediction.peak_bytes)
      .set("peak_at", peak_at(prediction))
      .set("alive_at_peak", alive_at_peak(prediction))
      .set("by_category_bytes",
           category_data(prediction.memory.at_peak).set("overhead", prediction.overhead_bytes))
      .set("overheads", overheads(prediction))
      .set("model_state_bytes", prediction.model_state_bytes)
      .set("host_bytes",
           whole("per_gpu", prediction.host_bytes_per_device)
               .set("per_node", prediction.host_bytes_per_node)
               .set("capacity_per_node",
                    prediction.host_capacity_bytes ? Data(*prediction.host_capacity_bytes) : Data()))
      .set("traffic_bytes", traffic(prediction.traffic))
      .set("traffic_psi", prediction.traffic_psi)
      .set("flops", flops(prediction.work));
  set_speed(result, answer.timed());
  result.set("suggestions", suggestions(answer));
  return Data::map()
      .set("schema", "zeroplan.fit/1")
      .set("version", answer.version)
      .set("inputs", inputs_data(answer.model, answer.resolved))
      .set("approximations", approximations_data(answer.prediction.program.approximations))
      .set("assumed", assumed_data(answer.resolved.assumptions))
      .set("notes", notes_data(answer.model, answer.resolved))
      .set("result", std::move(result));
}

}  // namespace zeroplan::reports
