#pragma once

#include <memory>
#include <vector>

#include "runtime/engine.hpp"

// What a graph is: the operations that were queued while their streams were captured, with their arguments as they
// were, and the waits between those streams. It is played into streams of its own, one for each that was captured.
namespace zeroplan::emulation {

struct GraphStep {
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t stream = 0;  // index into the captured streams
  Operation operation;
  std::size_t records = kNone, waits = kNone;  // numbers of points
};

struct Graph {
  std::vector<int> devices;  // of each captured stream
  std::vector<GraphStep> steps;
  std::size_t points = 0;
};

struct Capture {
  std::vector<CUstream_st*> members;  // the first is where it began
  std::vector<Clock> clocks;  // of each member: which steps of the others come before what it does next
  std::vector<Clock> points;
  Graph graph;
  bool invalid = false;

  std::size_t index_of(const CUstream_st* stream) const;
  void join(const std::shared_ptr<Capture>& self, CUstream_st& stream);
  void add(const CUstream_st& stream, Operation operation);
  std::size_t record(const CUstream_st& stream);
  void wait(const CUstream_st& stream, std::size_t point);
  // Whether all that was captured comes before what the first stream does next.
  bool joined() const;
};

// Whether the calling thread captures something: what would wait for a device may then not be called.
bool captures(const Engine& engine);

}  // namespace zeroplan::emulation

struct CUgraph_st {
  zeroplan::emulation::Graph graph;
};

struct CUgraphExec_st {
  zeroplan::emulation::Graph graph;
  std::vector<CUstream_st*> streams;
  std::vector<std::shared_ptr<zeroplan::emulation::Completion>> ends;  // of the last launch
};
