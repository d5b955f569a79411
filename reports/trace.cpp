#include "reports/trace.hpp"

#include <fmt/format.h>

#include <iterator>

namespace zeroplan::reports {
namespace {

using predict::Ready;
using predict::TraceEvent;

constexpr double kMicrosecondsPerSecond = 1e6;
constexpr std::size_t kBytesPerEvent = 200;

void add_track(fmt::memory_buffer& out, Ready stream) {
  fmt::format_to(std::back_inserter(out),
                 R"({{"ph":"M","name":"thread_name","pid":0,"tid":{},"args":{{"name":"{}"}}}},)"
                 "\n",
                 static_cast<int>(stream), predict::name_of(stream));
}

void add_event(fmt::memory_buffer& out, const TraceEvent& event) {
  fmt::format_to(std::back_inserter(out),
                 R"({{"ph":"X","name":"{}","cat":"{}","pid":0,"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{)",
                 event.name, program::name_of(event.phase), static_cast<int>(event.stream),
                 event.start_seconds * kMicrosecondsPerSecond, event.seconds * kMicrosecondsPerSecond);
  fmt::format_to(std::back_inserter(out), R"("micro_batch":{})", event.micro_batch);
  if (event.layer >= 0) fmt::format_to(std::back_inserter(out), R"(,"layer":{})", event.layer);
  if (event.recomputed) fmt::format_to(std::back_inserter(out), R"(,"recomputed":true)");
  if (event.group != program::Group::none) {
    fmt::format_to(std::back_inserter(out), R"(,"group":"{}")", program::name_of(event.group));
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
  for (const Ready stream : {Ready::compute, Ready::communication, Ready::tensor, Ready::copies}) {
    add_track(out, stream);
  }
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    if (i > 0) fmt::format_to(std::back_inserter(out), ",\n");
    add_event(out, trace.events[i]);
  }
  fmt::format_to(std::back_inserter(out), "\n]}}\n");
  return fmt::to_string(out);
}

}  // namespace zeroplan::reports
