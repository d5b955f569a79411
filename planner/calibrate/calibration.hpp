#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "planner/calibrate/probes.hpp"
#include "planner/calibrate/rates.hpp"

// From nothing to a machine's description: which probes are run, how often, and what becomes of their seconds. Whoever
// calls runs the probes.
namespace zeroplan::calibrate {

// One probe, run once on this rank.
struct ProbeRun {
  Repeats seconds;            // of each instruction
  Repeats waiting;            // of these, for other ranks
  Bytes workspace_bytes = 0;  // of the device, afterwards
  // What its driver counted then, beyond what it did with the buffers there; 0 where the memory is the host's.
  Bytes beside_buffers_bytes = 0;
};

// Runs `probe` in round `round`, from 1. Every rank of the group calls it for the same probe.
using RunProbe = std::function<ProbeRun(const Probe& probe, std::int64_t round)>;

struct Scope {
  std::vector<describe::Precision> types;
  std::int64_t rounds = 3;
  ProbeSizes sizes;
  bool on_gpus = false;  // whatever the sizes
};

// What is known of processors before anything is measured; `context_bytes`: what a process has with its device.
describe::Device new_device(std::string title, Bytes context_bytes);

// Adds to `device` what probes of `ranks` ranks at work come to. A machine is slower for seconds at a time, when it is
// shared or hot: so all probes are run in turn, several times, and what is slow in one round only does not count.
// Every rank calls it; on other ranks than 0 the device is left as it is.
void measure(const Scope& scope, const program::Group& ranks, const std::string& source, const RunProbe& run,
             describe::Device& device);

// Adds what is said of the whole machine: memory and host copies by its first tables, the fastest product of each type.
void finish(describe::Device& device);

}  // namespace zeroplan::calibrate
