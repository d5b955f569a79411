#pragma once

#include <string>

#include "planner/predict/trace.hpp"
#include "planner/units.hpp"

namespace zeroplan::reports {

// What surrounds a trace.
struct TraceFrame {
  std::string process;       // what its process is called in a viewer
  Bytes overhead_bytes = 0;  // of the device's memory, beside the program
  Bytes capacity_bytes = 0;
};

// A predicted step in the Trace Event Format of chrome://tracing and Perfetto (JSON, microseconds): one track for each stream,
// events named after instructions, with layer, micro-batch, bytes and rates beside them; flows from traffic to what waits for it;
// the device's memory by category and its capacity as counters, and the peak as an instant.
std::string chrome_trace(const predict::Trace& trace, const TraceFrame& frame);

}  // namespace zeroplan::reports
