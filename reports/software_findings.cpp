#include "reports/finding_lists.hpp"

namespace zeroplan::reports {
namespace {

using enum FindingState;

Finding cpu_module_finding(const FoundSystem& system) {
  Finding finding{.key = "cpu_module", .what = "zeroplan's CPU device", .needed = true};
  finding.why = "it runs plans on processors, and on GPUs what stays in host memory";
  if (system.cpu_module.works) {
    finding.found = "zeroplan_cpu.so opens";
    return finding;
  }
  finding.state = missing;
  finding.found = system.cpu_module.problem;
  finding.mend = "apt-get install libopenblas-dev && cmake --preset release && ninja -C build/release";
  return finding;
}

Finding blas_finding(const FoundSystem& system) {
  Finding finding{.key = "blas", .what = "BLAS kernels"};
  finding.why = "matrix products are most of a step on processors";
  finding.found = system.blas.device;
  if (system.blas.note.empty()) return finding;
  finding.state = warning;
  finding.found += ". " + system.blas.note;
  finding.mend = "unset OPENBLAS_CORETYPE";
  return finding;
}

Finding hwloc_finding(const FoundSystem& system) {
  Finding finding{.key = "hwloc", .what = "hwloc"};
  finding.why = "threads that wander between cores make times vary";
  if (system.pins_with_hwloc) {
    finding.found = "ranks are pinned to cores";
    return finding;
  }
  finding.state = warning;
  finding.found = "zeroplan was built without it: ranks are left where the system puts them";
  finding.mend = "apt-get install libhwloc-dev && cmake --preset release && ninja -C build/release";
  return finding;
}

Finding mpi_finding(const FoundSystem& system) {
  Finding finding{.key = "mpi", .what = "MPI"};
  finding.why = "mpirun starts ranks on several hosts, and threads or torchrun's variables need no MPI";
  const bool works = system.mpi_module.works && system.mpirun;
  if (works) {
    finding.found = "zeroplan_mpi.so opens; " + *system.mpirun;
    return finding;
  }
  finding.state = missing;
  finding.found = system.mpi_module.works ? "zeroplan_mpi.so opens, but there is no mpirun in PATH"
                                          : system.mpi_module.problem;
  finding.mend =
      "apt-get install libopenmpi-dev openmpi-bin && cmake --preset release && ninja -C build/release";
  return finding;
}

}  // namespace

void add_software_findings(const FoundSystem& system, RunsOn device, std::vector<Finding>& findings) {
  findings.push_back(cpu_module_finding(system));
  findings.back().needed = device == RunsOn::cpu;
  if (system.cpu_module.works) {
    findings.push_back(blas_finding(system));
    findings.push_back(hwloc_finding(system));
  }
  findings.push_back(mpi_finding(system));
}

}  // namespace zeroplan::reports
