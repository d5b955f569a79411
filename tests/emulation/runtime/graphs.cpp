#include <algorithm>

#include "runtime/capture.hpp"

namespace zeroplan::emulation {

std::size_t Capture::index_of(const CUstream_st* stream) const {
  return static_cast<std::size_t>(std::find(members.begin(), members.end(), stream) - members.begin());
}

void Capture::join(const std::shared_ptr<Capture>& self, CUstream_st& stream) {
  stream.capture = self;
  members.push_back(&stream);
  clocks.emplace_back();
  graph.devices.push_back(stream.device);
}

void Capture::add(const CUstream_st& stream, Operation operation) {
  const std::size_t index = index_of(&stream);
  (void)clocks[index].tick(index);
  graph.steps.push_back({index, std::move(operation)});
}

std::size_t Capture::record(const CUstream_st& stream) {
  const std::size_t index = index_of(&stream);
  points.push_back(clocks[index]);
  graph.steps.push_back({index, {}, graph.points});
  return graph.points++;
}

void Capture::wait(const CUstream_st& stream, std::size_t point) {
  const std::size_t index = index_of(&stream);
  clocks[index].join(points[point]);
  graph.steps.push_back({index, {}, GraphStep::kNone, point});
}

bool Capture::joined() const {
  for (std::size_t i = 1; i < members.size(); ++i) {
    if (clocks[0].of(i) < clocks[i].of(i)) return false;
  }
  return true;
}

bool captures(const Engine& engine) {
  return std::any_of(engine.streams.begin(), engine.streams.end(), [](const CUstream_st* stream) {
    return stream->capture && stream->capture->members[0] == stream &&
           stream->capture_thread == std::this_thread::get_id();
  });
}

namespace {

CUgraphExec_st* make_exec(Engine& the, const Graph& graph) {
  auto* exec = new CUgraphExec_st{graph, {}, {}};
  for (const int device : graph.devices) exec->streams.push_back(the.make_stream(device, true));
  the.graphs.insert(exec);
  return exec;
}

// Queues it between what was queued to the stream and what will be.
cudaError_t launch(Engine& the, CUgraphExec_st& exec, CUstream_st& stream) {
  const std::shared_ptr<Completion> start = the.record(stream);
  for (CUstream_st* own : exec.streams) {
    the.wait(*own, start);
    for (const auto& end : exec.ends) the.wait(*own, end);
  }
  std::vector<std::shared_ptr<Completion>> points(exec.graph.points);
  for (const GraphStep& step : exec.graph.steps) {
    CUstream_st& own = *exec.streams[step.stream];
    if (step.records != GraphStep::kNone) {
      points[step.records] = the.record(own);
    } else if (step.waits != GraphStep::kNone) {
      the.wait(own, points[step.waits]);
    } else if (const cudaError_t error = the.queue(own, step.operation); error != cudaSuccess) {
      return error;
    }
  }
  exec.ends.clear();
  for (CUstream_st* own : exec.streams) {
    exec.ends.push_back(the.record(*own));
    the.wait(stream, exec.ends.back());
  }
  return cudaSuccess;
}

}  // namespace
}  // namespace zeroplan::emulation

using zeroplan::emulation::Capture;
using zeroplan::emulation::Engine;
using zeroplan::emulation::release_call;
using zeroplan::emulation::runtime_call;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return runtime_call("cudaStreamBeginCapture", [&](Engine& the, Engine::Lock&) {
    CUstream_st* from = the.stream_of(stream);
    if (from == nullptr) return cudaErrorInvalidResourceHandle;
    if (from->defaulted) return cudaErrorStreamCaptureUnsupported;
    if (from->capture) return cudaErrorInvalidValue;
    auto capture = std::make_shared<Capture>();
    capture->join(capture, *from);
    from->capture_thread = std::this_thread::get_id();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* pCaptureStatus) {
  return runtime_call("cudaStreamIsCapturing", [&](Engine& the, Engine::Lock&) {
    const CUstream_st* from = the.stream_of(stream);
    if (from == nullptr) return cudaErrorInvalidResourceHandle;
    *pCaptureStatus = !from->capture           ? cudaStreamCaptureStatusNone
                      : from->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                               : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* pGraph) {
  return runtime_call("cudaStreamEndCapture", [&](Engine& the, Engine::Lock&) {
    CUstream_st* from = the.stream_of(stream);
    *pGraph = nullptr;
    if (from == nullptr) return cudaErrorInvalidResourceHandle;
    if (!from->capture) return cudaErrorInvalidValue;
    const std::shared_ptr<Capture> capture = from->capture;
    if (capture->members[0] != from) return cudaErrorStreamCaptureUnmatched;
    for (CUstream_st* member : capture->members) member->capture = nullptr;
    if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
    if (!capture->joined()) return cudaErrorStreamCaptureUnjoined;
    *pGraph = new CUgraph_st{capture->graph};
    the.graphs.insert(*pGraph);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* pGraphExec, cudaGraph_t graph,
                                          unsigned long long) {  // NOLINT(google-runtime-int): NVIDIA's
  return runtime_call("cudaGraphInstantiateWithFlags", [&](Engine& the, Engine::Lock&) {
    if (!the.graphs.contains(graph)) return cudaErrorInvalidValue;
    *pGraphExec = zeroplan::emulation::make_exec(the, graph->graph);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream) {
  return runtime_call("cudaGraphLaunch", [&](Engine& the, Engine::Lock&) {
    CUstream_st* on = the.stream_of(stream);
    if (on == nullptr || !the.graphs.contains(graphExec)) return cudaErrorInvalidResourceHandle;
    if (on->capture) return cudaErrorStreamCaptureUnsupported;
    return zeroplan::emulation::launch(the, *graphExec, *on);
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec) {
  return release_call("cudaGraphExecDestroy", [&](Engine& the, Engine::Lock& lock) {
    if (the.graphs.erase(graphExec) == 0) return cudaErrorInvalidResourceHandle;
    for (CUstream_st* own : graphExec->streams) the.destroy_stream(lock, own);
    delete graphExec;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return release_call("cudaGraphDestroy", [&](Engine& the, Engine::Lock&) {
    if (the.graphs.erase(graph) == 0) return cudaErrorInvalidResourceHandle;
    delete graph;
    return cudaSuccess;
  });
}

}  // extern "C"
