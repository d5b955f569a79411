#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "planner/found_machine.hpp"

namespace zeroplan::executor {

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

struct NvmlLibrary;

// NVIDIA's management library, opened while the program runs; no CUDA context is made and no memory of a GPU taken.
// Whatever the library lacks, refuses or does not support is absent from what is found. Nothing here throws for it.
class Nvml {
 public:
  explicit Nvml(const std::string& library = kNvmlLibrary);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  const FoundDriver& driver() const;
  std::int64_t gpus() const;  // 0 where the driver does not work

  // Requires 0 <= index < gpus(). Clocks, power and used memory are those of now.
  FoundGpu gpu(std::int64_t index) const;
  // Of every pair.
  std::vector<FoundPath> paths() const;

 private:
  std::unique_ptr<NvmlLibrary> library_;
};

}  // namespace zeroplan::executor
