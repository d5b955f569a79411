#pragma once

#include <string>

#include "planner/predict/trace.hpp"

namespace zeroplan::reports {

// A predicted step in the Trace Event Format of chrome://tracing and Perfetto (JSON, microseconds): one track
// for each stream, events named after instructions, with layer and micro-batch beside them.
std::string chrome_trace(const predict::Trace& trace);

}  // namespace zeroplan::reports
