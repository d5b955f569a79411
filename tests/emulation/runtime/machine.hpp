#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// What a test says of the emulated GPUs, and what it learns of the program that used them.
namespace zeroplan::emulation {

struct Gpu {
  std::size_t capacity = std::size_t{16} << 30;        // cudaMemGetInfo's total
  std::size_t context_bytes = std::size_t{300} << 20;  // of it, taken before the first allocation
  int sm = 90;                                         // compute capability, major * 10 + minor
  int multiprocessors = 4;
};

// In which order the streams of a device run. Whatever a program's result is, it must be the same under all of them.
enum class Policy : std::uint8_t {
  in_order,  // as it was queued
  late,      // only what a call of the host waits for, and what that waits for
  priority,  // one stream before all others while it can run; the seed is the number of the order of the streams
  random,  // any stream that can run, by the seed
};

struct Schedule {
  Policy policy = Policy::in_order;
  std::uint64_t seed = 0;
};

// The n-th time from now on, from 1.
struct Injection {
  std::string name;
  int n = 1;
  cudaError_t error = cudaSuccess;
};

struct MachineOptions {
  std::vector<Gpu> gpus = std::vector<Gpu>(8);
  Schedule schedule{};
  cudaError_t driver = cudaSuccess;  // what every call returns where it is another: no driver, no GPU
  double idle_seconds = 0.02;        // so long after the host's last call a thread works for it
  double stuck_seconds = 30;         // so long nothing could run while the host waited: an error
  std::vector<Injection> failing_calls{}, failing_operations{};  // as fail_call() and fail_operation()
};

// One at a time. Without one there are the default GPUs, and a problem ends the process with its text.
class Machine {
 public:
  explicit Machine(MachineOptions options = {});
  // Frees what is left.
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // The n-th call of a function from now on, from 1, returns the error and does nothing.
  void fail_call(const std::string& name, int n, cudaError_t error);
  // The n-th operation of that name, of a kernel without the template's arguments, that runs from now on does not, and its device has the sticky error.
  void fail_operation(const std::string& name, int n, cudaError_t error);

  // Until now: operations that touch the same bytes and that nothing orders, exceptions of operations, uses of what is no
  // memory or no handle, work that can never run. A correct program has none.
  std::vector<std::string> problems() const;
  // What was made and not given back.
  std::vector<std::string> leaks() const;
  // Operations that ran, with their device's number, in the order in which they began: "0 matmul".
  std::vector<std::string> history() const;
};

// The GPUs of a process that has no Machine: a problem ends it with its text.
void use_for_process(const MachineOptions& options);
// What it made and did not give back.
std::vector<std::string> leaks_of_process();

}  // namespace zeroplan::emulation
