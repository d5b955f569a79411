#pragma once

#include <vector>

#include "reports/findings.hpp"

// The parts of findings_of().
namespace zeroplan::reports {

// zeroplan's modules, BLAS, MPI, hwloc.
void add_software_findings(const FoundSystem& system, RunsOn device, std::vector<Finding>& findings);
// Driver, GPUs and their state, CUDA's libraries.
void add_gpu_findings(const FoundSystem& system, RunsOn device, std::vector<Finding>& findings);
// Ports, limits, control groups, huge pages, clocks.
void add_system_findings(const FoundSystem& system, RunsOn device, std::vector<Finding>& findings);

}  // namespace zeroplan::reports
