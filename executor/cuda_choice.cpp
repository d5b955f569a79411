#include "executor/cuda_choice.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include "executor/error.hpp"

namespace zeroplan::executor {

namespace {

constexpr int kVolta = 70, kAmpere = 80;
constexpr int kCuda12 = 12000, kCuda13 = 13000;

// The driver's own numbers of attributes (cuda.h, CUdevice_attribute).
constexpr int kMajor = 75, kMinor = 76;

template <class Function>
Function* symbol(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

std::string text_of(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

std::optional<CudaDriver> ask_cuda_driver() {
  // It stays open: the runtime will open it too, and a driver that started does not end well before the process does.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::nullopt;
  const auto start = symbol<int(unsigned)>(library, "cuInit");
  const auto version = symbol<int(int*)>(library, "cuDriverGetVersion");
  const auto count = symbol<int(int*)>(library, "cuDeviceGetCount");
  const auto device = symbol<int(int*, int)>(library, "cuDeviceGet");
  const auto attribute = symbol<int(int*, int, int)>(library, "cuDeviceGetAttribute");
  if (start == nullptr || version == nullptr || count == nullptr || device == nullptr || attribute == nullptr)
    return std::nullopt;
  CudaDriver found;
  int gpus = 0;
  if (start(0) != 0 || version(&found.version) != 0 || count(&gpus) != 0) return std::nullopt;
  for (int i = 0; i < gpus; ++i) {
    int gpu = 0, major = 0, minor = 0;
    if (device(&gpu, i) != 0 || attribute(&major, kMajor, gpu) != 0 || attribute(&minor, kMinor, gpu) != 0)
      return std::nullopt;
    found.sm.push_back(10 * major + minor);
  }
  return found;
}

CudaBuild choose_cuda_build(const CudaDriver& driver, int index) {
  const int sm = driver.sm.at(static_cast<std::size_t>(index));
  const std::string card = fmt::format("GPU {} has compute capability {}.{}", index, sm / 10, sm % 10);
  const auto need = [&](int version, const char* driver_version) {
    if (driver.version >= version) return;
    throw NotPossible(
        fmt::format("{}, whose kernels are built with CUDA {}, and the driver runs CUDA {} at most: "
                    "install driver {} or later",
                    card, version / 1000, text_of(driver.version), driver_version));
  };
  if (sm >= kAmpere) {
    need(kCuda13, "580");
    return {};
  }
  if (sm >= kVolta) {
    need(kCuda12, "525");
    return {.suffix = "_sm70", .libraries = {"libcudart.so.12", "libcublasLt.so.12"}};
  }
  throw NotPossible(fmt::format("{}, and zeroplan has kernels for 7.0 (V100) and later", card));
}

}  // namespace zeroplan::executor
