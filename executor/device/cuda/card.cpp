#include "executor/device/cuda/card.hpp"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

#include "executor/device/cuda/errors.hpp"
#include "executor/error.hpp"

namespace zeroplan::executor::cuda {

namespace {

// The oldest that kernels are compiled for (executor/CMakeLists.txt); Volta (7.0) has a module of its own
// (cmake/cuda_sm70.cmake).
#ifndef ZEROPLAN_OLDEST_SM
#define ZEROPLAN_OLDEST_SM 80
#endif
constexpr int kOldestSm = ZEROPLAN_OLDEST_SM;

std::string visible_devices() {
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  return value == nullptr ? "is not set" : fmt::format("is \"{}\"", value);
}

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// The runtime's call for names has a struct that differs between versions of CUDA; the driver's has not.
std::string name_of(int ordinal) {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return "GPU";
  const auto get = reinterpret_cast<int (*)(int*, int)>(dlsym(driver, "cuDeviceGet"));
  const auto get_name = reinterpret_cast<int (*)(char*, int, int)>(dlsym(driver, "cuDeviceGetName"));
  std::array<char, 256> name{};
  int device = 0;
  const bool known = get != nullptr && get_name != nullptr && get(&device, ordinal) == 0 &&
                     get_name(name.data(), static_cast<int>(name.size()) - 1, device) == 0;
  dlclose(driver);
  return known ? name.data() : "GPU";
}

std::string pci_address_of(int ordinal) {
  std::array<char, 32> address{};
  if (cudaDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), ordinal) != cudaSuccess) {
    (void)cudaGetLastError();
    return {};
  }
  std::string text(address.data());
  // CUDA has the hexadecimal digits of the bus as capitals, the system has not.
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

int attribute(cudaDeviceAttr which, int ordinal) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, ordinal), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace

int count_cards() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  (void)cudaGetLastError();
  if (error == cudaErrorInsufficientDriver) {
    int runtime = 0;
    (void)cudaRuntimeGetVersion(&runtime);
    throw NotPossible(fmt::format(
        "there is no NVIDIA driver here, or one that is older than CUDA {} needs: {}; nvidia-smi shows the "
        "driver",
        version_text(runtime), text_of(error)));
  }
  if (error == cudaSuccess || error == cudaErrorNoDevice) {
    throw NotPossible(
        fmt::format("CUDA finds no GPU (CUDA_VISIBLE_DEVICES {}); nvidia-smi shows those of this machine",
                    visible_devices()));
  }
  throw NotPossible(fmt::format("CUDA does not start: {}", text_of(error)));
}

Card open_card(int ordinal) {
  const int count = count_cards();
  if (ordinal < 0 || ordinal >= count) {
    throw NotPossible(
        fmt::format("there is no GPU {}: CUDA finds {}, from 0 (CUDA_VISIBLE_DEVICES {}); with --device "
                    "cuda:0 all ranks run "
                    "on the first",
                    ordinal, count, visible_devices()));
  }
  const cudaError_t error = cudaSetDevice(ordinal);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    throw NotPossible(fmt::format("GPU {} cannot be used: {}", ordinal, text_of(error)));
  }
  Card card{.ordinal = ordinal, .name = name_of(ordinal), .pci_address = pci_address_of(ordinal)};
  card.sm = 10 * attribute(cudaDevAttrComputeCapabilityMajor, ordinal) +
            attribute(cudaDevAttrComputeCapabilityMinor, ordinal);
  card.multiprocessors = attribute(cudaDevAttrMultiProcessorCount, ordinal);
  if (cudaDeviceGetAttribute(&card.clock_khz, cudaDevAttrClockRate, ordinal) != cudaSuccess)
    (void)cudaGetLastError();
  if (card.sm < kOldestSm) {
    throw NotPossible(fmt::format(
        "GPU {} ({}) has compute capability {}.{}, and this zeroplan has kernels for {}.{} and later",
        ordinal, card.name, card.sm / 10, card.sm % 10, kOldestSm / 10, kOldestSm % 10));
  }
  return card;
}

}  // namespace zeroplan::executor::cuda
