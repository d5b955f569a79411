#include <cstdio>

#include "runtime/capture.hpp"

// Devices and errors.

using zeroplan::emulation::Engine;
using zeroplan::emulation::runtime_call;

namespace {

struct ErrorName {
  cudaError_t error;
  const char *name, *text;
};

// Names and texts as the runtime of CUDA 13.0 gives them.
constexpr ErrorName kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
};

const ErrorName* find(cudaError_t error) {
  for (const ErrorName& known : kErrors) {
    if (known.error == error) return &known;
  }
  return nullptr;
}

bool is_device(const Engine& the, int device) { return device >= 0 && device < the.devices(); }

int attribute(const zeroplan::emulation::Gpu& gpu, cudaDeviceAttr attr) {
  constexpr int kKiB = 1024;
  switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock:
      return 1024;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return 48 * kKiB;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrClockRate:
      return 1'500'000;  // kHz
    case cudaDevAttrMemoryClockRate:
      return 2'000'000;
    case cudaDevAttrMultiProcessorCount:
      return gpu.multiprocessors;
    case cudaDevAttrL2CacheSize:
      return 40 * kKiB * kKiB;
    case cudaDevAttrComputeCapabilityMajor:
      return gpu.sm / 10;
    case cudaDevAttrComputeCapabilityMinor:
      return gpu.sm % 10;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      // CUDA programming guide, table of compute capabilities: 7.0, 8.0, 8.6 and 12.0, 9.0 and 10.0.
      return (gpu.sm == 70 ? 96 : gpu.sm == 80 ? 163 : gpu.sm == 90 || gpu.sm == 100 ? 227 : 99) * kKiB;
  }
  return 0;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  return runtime_call("cudaGetDeviceCount", [&](Engine& the, Engine::Lock&) {
    *count = the.devices();
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return runtime_call("cudaSetDevice", [&](Engine& the, Engine::Lock&) {
    if (!is_device(the, device)) return cudaErrorInvalidDevice;
    zeroplan::emulation::host_thread().device = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return runtime_call("cudaGetDevice", [&](Engine& the, Engine::Lock&) {
    *device = the.current_device();
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  return runtime_call("cudaDeviceGetAttribute", [&](Engine& the, Engine::Lock&) {
    if (!is_device(the, device)) return cudaErrorInvalidDevice;
    *value = attribute(the.gpu(device), attr);
    return *value != 0 || attr == cudaDevAttrComputeCapabilityMinor ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* pciBusId, int len, int device) {
  return runtime_call("cudaDeviceGetPCIBusId", [&](Engine& the, Engine::Lock&) {
    if (!is_device(the, device)) return cudaErrorInvalidDevice;
    (void)std::snprintf(pciBusId, static_cast<std::size_t>(len), "0000:%02X:00.0", 26 + device);
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* driverVersion) {
  *driverVersion = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* runtimeVersion) {
  *runtimeVersion = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  return runtime_call("cudaDeviceSynchronize", [&](Engine& the, Engine::Lock& lock) {
    if (captures(the)) return cudaErrorStreamCaptureUnsupported;
    const int device = the.current_device();
    the.reach_all(lock, device);
    return the.device_error(device);
  });
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  zeroplan::emulation::host_thread().last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() {
  Engine& the = zeroplan::emulation::engine();
  const Engine::Lock lock(the.mutex);
  const int device = the.current_device();
  const cudaError_t last = zeroplan::emulation::host_thread().last_error;
  return last == cudaSuccess && is_device(the, device) ? the.device_error(device) : last;
}

const char* cudaGetErrorName(cudaError_t error) {
  const ErrorName* known = find(error);
  return known != nullptr ? known->name : "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  const ErrorName* known = find(error);
  return known != nullptr ? known->text : "unrecognized error code";
}

// Devices reach each other's memory here.
cudaError_t cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice) {
  return runtime_call("cudaDeviceCanAccessPeer", [&](Engine& the, Engine::Lock&) {
    if (!is_device(the, device) || !is_device(the, peerDevice)) return cudaErrorInvalidDevice;
    *canAccessPeer = device == peerDevice ? 0 : 1;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int) {
  return runtime_call("cudaDeviceEnablePeerAccess", [&](Engine& the, Engine::Lock&) {
    return is_device(the, peerDevice) && peerDevice != the.current_device() ? cudaSuccess
                                                                            : cudaErrorInvalidDevice;
  });
}

}  // extern "C"
