#include <fmt/format.h>

#include "runtime/capture.hpp"

// Streams, events and functions of the host.

namespace zeroplan::emulation {

namespace {

// A wait while something is captured ends the capture, as does looking whether a captured stream is done.
cudaError_t refuse_capture(CUstream_st& stream) {
  stream.capture->invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

}  // namespace

cudaError_t enqueue(cudaStream_t stream, const char* name, std::span<const Range> ranges,
                    std::function<void()> run, std::function<bool()> ready) {
  return runtime_call(name, [&](Engine& the, Engine::Lock&) {
    CUstream_st* on = the.stream_of(stream);
    if (on == nullptr) {
      the.problem(fmt::format("{} was queued to what is no stream", name));
      return cudaErrorInvalidResourceHandle;
    }
    Operation operation{name, std::move(run), std::move(ready), {ranges.begin(), ranges.end()}};
    if (!on->capture) return the.queue(*on, std::move(operation));
    if (on->capture->invalid) return cudaErrorStreamCaptureInvalidated;
    on->capture->add(*on, std::move(operation));
    return cudaSuccess;
  });
}

int device_of(cudaStream_t stream) {
  Engine& the = engine();
  const Engine::Lock lock(the.mutex);
  const CUstream_st* found = the.stream_of(stream);
  return found == nullptr ? 0 : found->device;
}

}  // namespace zeroplan::emulation

using zeroplan::emulation::Engine;
using zeroplan::emulation::refuse_capture;
using zeroplan::emulation::release_call;
using zeroplan::emulation::runtime_call;

extern "C" {

cudaError_t cudaDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  return runtime_call("cudaDeviceGetStreamPriorityRange", [&](Engine&, Engine::Lock&) {
    *leastPriority = 0;
    *greatestPriority = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* pStream, unsigned int flags, int) {
  return runtime_call("cudaStreamCreateWithPriority", [&](Engine& the, Engine::Lock&) {
    if (flags != cudaStreamNonBlocking) return cudaErrorNotSupported;  // they would meet the default stream
    *pStream = the.make_stream(the.current_device(), false);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return release_call("cudaStreamDestroy", [&](Engine& the, Engine::Lock& lock) {
    if (stream == nullptr || the.stream_of(stream) == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->capture) return refuse_capture(*stream);
    the.destroy_stream(lock, stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return runtime_call("cudaStreamSynchronize", [&](Engine& the, Engine::Lock& lock) {
    CUstream_st* on = the.stream_of(stream);
    if (on == nullptr) return cudaErrorInvalidResourceHandle;
    if (on->capture) return refuse_capture(*on);
    const int device = on->device;
    the.reach(lock, the.record(*on));
    return the.device_error(device);
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return runtime_call("cudaStreamQuery", [&](Engine& the, Engine::Lock& lock) {
    CUstream_st* on = the.stream_of(stream);
    if (on == nullptr) return cudaErrorInvalidResourceHandle;
    if (on->capture) return refuse_capture(*on);
    const int device = on->device;
    const auto point = the.record(*on);
    the.help(lock, point);
    if (the.device_error(device) != cudaSuccess) return the.device_error(device);
    return point->done ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  return runtime_call("cudaStreamWaitEvent", [&](Engine& the, Engine::Lock&) {
    CUstream_st* on = the.stream_of(stream);
    if (on == nullptr || !the.events.contains(event)) return cudaErrorInvalidResourceHandle;
    if (event->captured) {
      const auto capture = event->capture.lock();
      if (!capture || capture->members[0]->capture != capture) return cudaErrorCapturedEvent;
      if (on->capture && on->capture != capture) return refuse_capture(*on);
      if (!on->capture) capture->join(capture, *on);
      capture->wait(*on, event->captured_number);
      return cudaSuccess;
    }
    if (!event->recorded) return cudaSuccess;
    if (on->capture) {
      on->capture->invalid = true;
      return cudaErrorStreamCaptureIsolation;
    }
    the.wait(*on, event->recorded);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return runtime_call("cudaEventCreateWithFlags", [&](Engine& the, Engine::Lock&) {
    *event = new CUevent_st;
    (*event)->timed = (flags & cudaEventDisableTiming) == 0;
    the.events.insert(*event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return runtime_call("cudaEventRecord", [&](Engine& the, Engine::Lock&) {
    CUstream_st* on = the.stream_of(stream);
    if (on == nullptr || !the.events.contains(event)) return cudaErrorInvalidResourceHandle;
    event->captured = on->capture != nullptr;
    if (event->captured) {
      event->capture = on->capture;
      event->captured_number = on->capture->record(*on);
    } else {
      event->recorded = the.record(*on);
    }
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return runtime_call("cudaEventSynchronize", [&](Engine& the, Engine::Lock& lock) {
    if (!the.events.contains(event)) return cudaErrorInvalidResourceHandle;
    if (event->captured) return cudaErrorCapturedEvent;
    if (captures(the)) return cudaErrorStreamCaptureUnsupported;
    if (event->recorded) the.reach(lock, event->recorded);
    return the.device_error(the.current_device());
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return runtime_call("cudaEventQuery", [&](Engine& the, Engine::Lock& lock) {
    if (!the.events.contains(event)) return cudaErrorInvalidResourceHandle;
    if (event->captured) return cudaErrorCapturedEvent;
    if (!event->recorded) return cudaSuccess;
    the.help(lock, event->recorded);
    if (const cudaError_t error = the.device_error(the.current_device()); error != cudaSuccess) return error;
    return event->recorded->done ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return runtime_call("cudaEventElapsedTime", [&](Engine& the, Engine::Lock&) {
    if (!the.events.contains(start) || !the.events.contains(end)) return cudaErrorInvalidResourceHandle;
    if (!start->timed || !end->timed || !start->recorded || !end->recorded)
      return cudaErrorInvalidResourceHandle;
    if (start->captured || end->captured) return cudaErrorCapturedEvent;
    if (!start->recorded->done || !end->recorded->done) return cudaErrorNotReady;
    *ms = std::chrono::duration<float, std::milli>(end->recorded->at - start->recorded->at).count();
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return release_call("cudaEventDestroy", [&](Engine& the, Engine::Lock&) {
    if (the.events.erase(event) == 0) return cudaErrorInvalidResourceHandle;
    delete event;
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* userData) {
  return zeroplan::emulation::enqueue(stream, "cudaLaunchHostFunc", {}, [fn, userData] { fn(userData); });
}

}  // extern "C"
