#include "reports/trace.hpp"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <string_view>

namespace zeroplan::reports {
namespace {

using predict::TraceEvent;
using program::Stream;

constexpr double kMicrosecondsPerSecond = 1e6;
constexpr std::size_t kBytesPerEvent = 200;

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

void add_track(fmt::memory_buffer& out, Stream stream) {
  fmt::format_to(std::back_inserter(out),
                 R"({{"ph":"M","name":"thread_name","pid":0,"tid":{},"args":{{"name":"{}"}}}},)"
                 "\n",
                 static_cast<int>(stream), track_of(stream));
}

void add_event(fmt::memory_buffer& out, const TraceEvent& event) {
  fmt::format_to(std::back_inserter(out),
                 R"({{"ph":"X","name":"{}","cat":"{}","pid":0,"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{)",
                 event.name, program::name_of(event.phase), static_cast<int>(event.stream),
                 event.start_seconds * kMicrosecondsPerSecond, event.seconds * kMicrosecondsPerSecond);
  fmt::format_to(std::back_inserter(out), R"("micro_batch":{})", event.micro_batch);
  if (event.layer >= 0) fmt::format_to(std::back_inserter(out), R"(,"layer":{})", event.layer);
  if (event.recomputed) fmt::format_to(std::back_inserter(out), R"(,"recomputed":true)");
  if (event.group) {
    fmt::format_to(std::back_inserter(out), R"(,"group":"{}")", program::name_of(*event.group));
  }
  fmt::format_to(std::back_inserter(out), "}}}}");
}

}  // namespace

std::string chrome_trace(const predict::Trace& trace) {
  fmt::memory_buffer out;
  out.reserve(kBytesPerEvent * trace.events.size());
  fmt::format_to(std::back_inserter(out),
                 R"({{"displayTimeUnit":"ms","otherData":{{"schema":"zeroplan.trace/1","step_seconds":{},)"
                 R"("micro_batches":{},"micro_batches_left_out":{}}},"traceEvents":[)"
                 "\n",
                 trace.step_seconds, trace.micro_batches, trace.left_out);
  std::array<bool, program::kStreams> is_used{};
  for (const TraceEvent& event : trace.events) is_used[static_cast<std::size_t>(event.stream)] = true;
  for (std::size_t stream = 0; stream < is_used.size(); ++stream) {
    if (is_used[stream]) add_track(out, static_cast<Stream>(stream));
  }
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    if (i > 0) fmt::format_to(std::back_inserter(out), ",\n");
    add_event(out, trace.events[i]);
  }
  fmt::format_to(std::back_inserter(out), "\n]}}\n");
  return fmt::to_string(out);
}

}  // namespace zeroplan::reports
