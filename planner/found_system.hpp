#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/found_machine.hpp"
#include "planner/units.hpp"

// What was found of the software and of the system's limits on the machine that the program runs on, as plain data:
// executor/machine reads it, reports/findings says what it means. What nobody could read is absent.
namespace zeroplan {

// A library that was looked for under its files' names, newest first.
struct FoundLibrary {
  std::string file;                     // that opened, "libcudart.so.12"; empty: none did
  std::vector<std::string> looked_for;  // in this order
  std::optional<std::int64_t> version;  // as its own function counts it
};

// A part of zeroplan that is opened when it is asked for.
struct FoundModule {
  bool works = false;
  std::string problem;  // in a sentence where it does not
};

// The CPU device, which knows the kernels that its BLAS chose.
struct FoundBlas {
  std::string device;  // "cpu (OpenBLAS 0.3.21, Haswell kernels)"; empty: there is no CPU device
  std::string note;    // what is wrong with that choice; empty: nothing
};

struct FoundSystem {
  FoundMachine machine;
  FoundModule cpu_module, mpi_module, cuda_module, nccl_module;
  FoundBlas blas;
  bool pins_with_hwloc = false;
  FoundLibrary cuda_runtime, cublaslt, nccl;
  std::optional<std::string> mpirun;  // its path

  std::int64_t rendezvous_port = 0;
  std::string rendezvous_problem;  // why nobody could listen there; empty: it is free

  std::optional<Bytes> locked_memory_bytes;  // soft limit; absent: none
  std::optional<std::int64_t> open_files;    // soft limit; absent: none
  std::optional<Bytes> shared_memory_bytes;  // of /dev/shm
  std::optional<Bytes> cgroup_memory_bytes;  // absent: no limit, or not known
  std::optional<double> cgroup_cpus;         // the same
  std::int64_t allowed_cpus = 0;             // that this process may run on
  std::optional<std::int64_t> huge_pages;    // reserved, of huge_page_bytes each
  std::optional<Bytes> huge_page_bytes;
  std::optional<std::string> transparent_huge_pages;  // "always", "madvise", "never"
  std::optional<std::string> clock_source;            // "tsc"
  // How far the monotonic clock went back, at most, between readings on one processor after another; 0: never.
  std::int64_t clock_steps_back_nanoseconds = 0;
};

}  // namespace zeroplan
