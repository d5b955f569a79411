#include "reports/trace.hpp"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace zeroplan::reports {
namespace {

using predict::TraceEvent;
using program::Stream;

using Json = nlohmann::ordered_json;

std::string_view track_of(Stream stream) {
  switch (stream) {
    case Stream::compute:
      return "kernels";
    case Stream::communication:
      return "data-parallel collectives";
    case Stream::tensor:
      return "tensor-parallel collectives";
    case Stream::to_host:
      return "copies to the host";
    case Stream::to_device:
      return "copies from the host";
    case Stream::host:
      return "processors of the host";
    case Stream::input:
      break;
  }
  return "input";
}

// In microseconds; a nanosecond is the smallest that the format's readers show.
double microseconds(double seconds) {
  constexpr double kNanosecondsPerSecond = 1e9, kNanosecondsPerMicrosecond = 1e3;
  return std::round(seconds * kNanosecondsPerSecond) / kNanosecondsPerMicrosecond;
}

Json json_of(const TraceEvent& event) {
  Json arguments = {{"micro_batch", event.micro_batch}};
  if (event.layer >= 0) arguments["layer"] = event.layer;
  if (event.recomputed) arguments["recomputed"] = true;
  if (event.group) arguments["group"] = program::name_of(*event.group);
  if (event.bytes > 0) {
    constexpr double kGiga = 1e9;
    arguments["bytes"] = event.bytes;
    arguments["sent_bytes"] = event.sent_bytes;
    arguments["sent_gb_per_s"] = event.sent_bytes / event.seconds / kGiga;
  }
  return {{"ph", "X"},
          {"name", event.name},
          {"cat", program::name_of(event.phase)},
          {"pid", 0},
          {"tid", static_cast<int>(event.stream)},
          {"ts", microseconds(event.start_seconds)},
          {"dur", microseconds(event.seconds)},
          {"args", std::move(arguments)}};
}

Json named(const char* what, int track, std::string_view name) {
  return {{"ph", "M"}, {"name", what}, {"pid", 0}, {"tid", track}, {"args", {{"name", name}}}};
}

Json counter(const char* name, double seconds, Json values) {
  return {{"ph", "C"},
          {"name", name},
          {"pid", 0},
          {"tid", 0},
          {"ts", microseconds(seconds)},
          {"args", std::move(values)}};
}

Json memory_counter(const predict::MemoryMoment& moment, const TraceFrame& frame) {
  Json values = Json::object();
  for (std::size_t i = 0; i < moment.held.size(); ++i)
    values[std::string(program::name_of(static_cast<program::Category>(i)))] = moment.held[i];
  values["overhead"] = frame.overhead_bytes;
  return counter("memory, bytes", moment.seconds, std::move(values));
}

// The two ends of an arrow; viewers tie each to the event that lasts at its time.
std::array<Json, 2> arrow(const predict::Trace& trace, std::size_t number) {
  const auto end_of = [&](const char* kind, std::size_t event, double seconds) {
    return Json{{"ph", kind},
                {"name", "waited for"},
                {"cat", "order"},
                {"id", number},
                {"pid", 0},
                {"tid", static_cast<int>(trace.events[event].stream)},
                {"ts", microseconds(seconds)}};
  };
  const predict::TraceFlow& flow = trace.flows[number];
  std::array<Json, 2> ends{end_of("s", flow.from, trace.events[flow.from].start_seconds),
                           end_of("f", flow.to, trace.events[flow.to].start_seconds)};
  ends[1]["bp"] = "e";
  return ends;
}

void add_memory(const predict::Trace& trace, const TraceFrame& frame, const auto& add) {
  if (trace.memory.empty()) return;
  const predict::MemoryMoment* peak = &trace.memory.front();
  for (const predict::MemoryMoment& moment : trace.memory) {
    add(memory_counter(moment, frame));
    if (moment.bytes() > peak->bytes()) peak = &moment;
  }
  for (const double seconds : {0.0, trace.step_seconds})
    add(counter("capacity, bytes", seconds, {{"capacity", frame.capacity_bytes}}));
  add(Json{
      {"ph", "i"},
      {"name", "peak of memory"},
      {"s", "p"},
      {"pid", 0},
      {"tid", static_cast<int>(Stream::compute)},
      {"ts", microseconds(peak->seconds)},
      {"args", {{"bytes", peak->bytes() + frame.overhead_bytes}, {"phase", program::name_of(peak->phase)}}}});
}

}  // namespace

std::string chrome_trace(const predict::Trace& trace, const TraceFrame& frame) {
  const Json facts{{"schema", "zeroplan.trace/1"},
                   {"step_seconds", trace.step_seconds},
                   {"micro_batches", trace.micro_batches},
                   {"micro_batches_left_out", trace.left_out}};
  // A line for each event: a whole one would be a tree of hundreds of thousands before it is written.
  std::string text = R"({"displayTimeUnit":"ms","otherData":)" + facts.dump() + R"(,"traceEvents":[)";
  const char* separator = "\n";
  const auto add = [&](const Json& event) {
    text += separator + event.dump();
    separator = ",\n";
  };
  add(named("process_name", 0, frame.process));
  std::array<bool, program::kStreams> is_used{};
  for (const TraceEvent& event : trace.events) is_used[static_cast<std::size_t>(event.stream)] = true;
  for (std::size_t stream = 0; stream < is_used.size(); ++stream) {
    if (is_used[stream])
      add(named("thread_name", static_cast<int>(stream), track_of(static_cast<Stream>(stream))));
  }
  for (const TraceEvent& event : trace.events) add(json_of(event));
  for (std::size_t i = 0; i < trace.flows.size(); ++i) {
    for (const Json& end : arrow(trace, i)) add(end);
  }
  add_memory(trace, frame, add);
  return text + "\n]}\n";
}

}  // namespace zeroplan::reports
