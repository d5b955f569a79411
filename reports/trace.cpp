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

Json track(Stream stream) {
  return {{"ph", "M"},
          {"name", "thread_name"},
          {"pid", 0},
          {"tid", static_cast<int>(stream)},
          {"args", {{"name", track_of(stream)}}}};
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
  return {{"ph", "X"},
          {"name", event.name},
          {"cat", program::name_of(event.phase)},
          {"pid", 0},
          {"tid", static_cast<int>(event.stream)},
          {"ts", microseconds(event.start_seconds)},
          {"dur", microseconds(event.seconds)},
          {"args", std::move(arguments)}};
}

}  // namespace

std::string chrome_trace(const predict::Trace& trace) {
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
  std::array<bool, program::kStreams> is_used{};
  for (const TraceEvent& event : trace.events) is_used[static_cast<std::size_t>(event.stream)] = true;
  for (std::size_t stream = 0; stream < is_used.size(); ++stream) {
    if (is_used[stream]) add(track(static_cast<Stream>(stream)));
  }
  for (const TraceEvent& event : trace.events) add(json_of(event));
  return text + "\n]}\n";
}

}  // namespace zeroplan::reports
