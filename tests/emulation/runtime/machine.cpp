#include "runtime/machine.hpp"

#include <fmt/format.h>

#include "runtime/engine.hpp"

namespace zeroplan::emulation {

Machine::Machine(MachineOptions options) {
  Engine& the = engine();
  Engine::Lock lock(the.mutex);
  the.reset(lock, options, true);
}

Machine::~Machine() {
  Engine& the = engine();
  Engine::Lock lock(the.mutex);
  the.reset(lock, {}, false);
}

void Machine::fail_call(const std::string& name, int n, cudaError_t error) {
  Engine& the = engine();
  const Engine::Lock lock(the.mutex);
  the.failing_calls.push_back({name, n, error});
}

void Machine::fail_operation(const std::string& name, int n, cudaError_t error) {
  Engine& the = engine();
  const Engine::Lock lock(the.mutex);
  the.failing_operations.push_back({name, n, error});
}

std::vector<std::string> Machine::problems() const {
  Engine& the = engine();
  const Engine::Lock lock(the.mutex);
  return the.problems;
}

std::vector<std::string> Machine::history() const {
  Engine& the = engine();
  const Engine::Lock lock(the.mutex);
  return the.history;
}

std::vector<std::string> leaks_of_process() {
  Engine& the = engine();
  const Engine::Lock lock(the.mutex);
  std::vector<std::string> left;
  for (const auto& [begin, allocation] : the.memory.allocations()) {
    left.push_back(fmt::format("{} bytes of {} memory of device {}", allocation.bytes,
                               allocation.pinned ? "pinned" : "device", allocation.device));
  }
  for (const CUstream_st* stream : the.streams) {
    if (!stream->hidden && !stream->defaulted) left.push_back(fmt::format("stream {}", stream->number));
  }
  if (!the.events.empty()) left.push_back(fmt::format("{} events", the.events.size()));
  if (!the.graphs.empty()) left.push_back(fmt::format("{} graphs", the.graphs.size()));
  return left;
}

std::vector<std::string> Machine::leaks() const { return leaks_of_process(); }

void use_for_process(const MachineOptions& options) {
  Engine& the = engine();
  Engine::Lock lock(the.mutex);
  the.reset(lock, options, false);
}

}  // namespace zeroplan::emulation
