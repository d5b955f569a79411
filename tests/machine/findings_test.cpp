#include "reports/findings.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "reports/doctor_report.hpp"
#include "reports/writers.hpp"
#include "tests/support/json_schema.hpp"

using namespace zeroplan;
using nlohmann::json;
using reports::Finding;
using reports::findings_of;
using reports::FindingState;
using reports::RunsOn;

namespace {

// A machine on which nothing is wrong.
FoundSystem in_order() {
  FoundSystem system;
  system.machine.host.logical_cpus = 64;
  system.machine.host.memory_bytes = 512 * kGiB;
  system.machine.driver.works = true;
  system.machine.driver.version = "570.86.15";
  system.machine.driver.cuda_version = 12080;
  for (int i = 0; i < 2; ++i) {
    FoundGpu gpu;
    gpu.index = i;
    gpu.name = "NVIDIA H200";
    gpu.total_bytes = 143771 * kMiB;
    gpu.compute_capability = 9.0;
    gpu.sm_clock_mhz = 1980;
    gpu.most_sm_clock_mhz = 1980;
    gpu.throttle_reasons = std::vector<std::string>{"idle"};
    gpu.mig = false;
    gpu.persistence = true;
    system.machine.gpus.push_back(gpu);
  }
  for (FoundModule* module :
       {&system.cpu_module, &system.mpi_module, &system.cuda_module, &system.nccl_module}) {
    module->works = true;
  }
  system.blas.device = "cpu (OpenBLAS 0.3.21, Zen kernels)";
  system.pins_with_hwloc = true;
  system.cuda_runtime = {"libcudart.so.12", {"libcudart.so.12"}, 12080};
  system.cublaslt = {"libcublasLt.so.12", {"libcublasLt.so.12"}, 120804};
  system.nccl = {"libnccl.so.2", {"libnccl.so.2"}, 22809};
  system.mpirun = "/usr/bin/mpirun";
  system.rendezvous_port = 29500;
  system.shared_memory_bytes = 64 * kGiB;
  system.allowed_cpus = 64;
  system.huge_pages = 0;
  system.huge_page_bytes = 2 * kMiB;
  system.transparent_huge_pages = "madvise";
  system.clock_source = "tsc";
  return system;
}

// What differs from a machine in order after a change, as "key: state", by key.
std::vector<std::string> differences(RunsOn device, const std::function<void(FoundSystem&)>& change) {
  FoundSystem system = in_order();
  change(system);
  std::vector<std::string> found;
  for (const Finding& finding : findings_of(system, device)) {
    if (finding.state == FindingState::ok) continue;
    CAPTURE(finding.key);
    CHECK(!finding.mend.empty());
    found.push_back(finding.key + ": " + std::string(name_of(finding.state)) +
                    (finding.needed ? ", needed" : ""));
  }
  return found;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("doctor: a machine in order") {
  const FoundSystem system = in_order();
  CHECK(reports::device_of(system) == RunsOn::cuda);
  for (const RunsOn device : {RunsOn::cpu, RunsOn::cuda}) {
    const std::vector<Finding> findings = findings_of(system, device);
    CHECK(reports::suffices(findings));
    std::set<std::string> keys;
    for (const Finding& finding : findings) {
      CAPTURE(finding.key);
      CHECK(finding.state == FindingState::ok);
      CHECK(!finding.found.empty());
      CHECK(!finding.why.empty());
      CHECK(finding.mend.empty());
      CHECK(keys.insert(finding.key).second);
    }
  }
}

TEST_CASE("doctor: each thing that is missing, and whether a run needs it") {
  struct Case {
    std::function<void(FoundSystem&)> change;
    Texts on_gpus, on_processors;
  };
  const std::vector<Case> cases{
      {[](FoundSystem& s) {
         s.machine.driver = {false, "not loaded", {}, {}};
         s.machine.gpus.clear();
       },
       {"driver: missing, needed"},
       {}},
      {[](FoundSystem& s) { s.machine.gpus.clear(); }, {"gpus: missing, needed"}, {}},
      {[](FoundSystem& s) { s.machine.driver.cuda_version = 10020; },
       {"driver: missing, needed", "cuda_runtime: missing, needed"},
       {"driver: missing", "cuda_runtime: missing"}},
      {[](FoundSystem& s) {
         s.cuda_runtime = {"", {"libcudart.so.12"}, {}};
       },
       {"cuda_runtime: missing, needed"},
       {"cuda_runtime: missing"}},
      {[](FoundSystem& s) { s.cuda_runtime.version = 13000; },
       {"cuda_runtime: missing, needed"},
       {"cuda_runtime: missing"}},
      {[](FoundSystem& s) {
         s.cublaslt = {"", {"libcublasLt.so.12"}, {}};
       },
       {"cublaslt: missing, needed"},
       {"cublaslt: missing"}},
      {[](FoundSystem& s) {
         s.nccl = {"", {"libnccl.so.2"}, {}};
       },
       {"nccl: missing, needed"},
       {"nccl: missing"}},
      {[](FoundSystem& s) { s.nccl.version = 21003; }, {"nccl: missing, needed"}, {"nccl: missing"}},
      {[](FoundSystem& s) {
         s.nccl = {"", {"libnccl.so.2"}, {}};
         s.machine.gpus.pop_back();
       },
       {"nccl: missing"},
       {"nccl: missing"}},
      {[](FoundSystem& s) {
         s.cuda_module = {false, "it is of another build"};
       },
       {"cuda_module: missing, needed"},
       {"cuda_module: missing"}},
      {[](FoundSystem& s) {
         s.nccl_module = {false, "it was not found"};
       },
       {"nccl_module: missing, needed"},
       {"nccl_module: missing"}},
      {[](FoundSystem& s) {
         s.cpu_module = {false, "it was not found"};
       },
       {"cpu_module: missing"},
       {"cpu_module: missing, needed"}},
      {[](FoundSystem& s) {
         s.mpi_module = {false, "it was not found"};
       },
       {"mpi: missing"},
       {"mpi: missing"}},
      {[](FoundSystem& s) { s.mpirun.reset(); }, {"mpi: missing"}, {"mpi: missing"}},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(i);
    CHECK(differences(RunsOn::cuda, cases[i].change) == cases[i].on_gpus);
    CHECK(differences(RunsOn::cpu, cases[i].change) == cases[i].on_processors);
  }
}

TEST_CASE("doctor: what is worth a warning") {
  struct Case {
    std::function<void(FoundSystem&)> change;
    std::string key;
    bool on_processors;  // also where the run is on them
  };
  const std::vector<Case> cases{
      {[](FoundSystem& s) { s.machine.gpus[1].mig = true; }, "mig", true},
      {[](FoundSystem& s) { s.machine.gpus[1].throttle_reasons = Texts{"power cap"}; }, "gpu_clocks", true},
      {[](FoundSystem& s) { s.machine.gpus[0].persistence = false; }, "persistence", true},
      {[](FoundSystem& s) { s.machine.gpus[1] = FoundGpu{}; }, "gpus", true},
      {[](FoundSystem& s) { s.machine.gpus[1].compute_capability = 6.1; }, "gpus", true},
      {[](FoundSystem& s) { s.blas.note = "OPENBLAS_CORETYPE is Prescott"; }, "blas", true},
      {[](FoundSystem& s) { s.pins_with_hwloc = false; }, "hwloc", true},
      {[](FoundSystem& s) { s.rendezvous_problem = "somebody listens there"; }, "port", true},
      {[](FoundSystem& s) { s.locked_memory_bytes = 64 * kKiB; }, "locked_memory", false},
      {[](FoundSystem& s) { s.open_files = 1024; }, "open_files", false},
      {[](FoundSystem& s) { s.open_files = 256; }, "open_files", true},
      {[](FoundSystem& s) { s.shared_memory_bytes = 64 * kMiB; }, "shared_memory", false},
      {[](FoundSystem& s) { s.cgroup_memory_bytes = 16 * kGiB; }, "host_memory", true},
      {[](FoundSystem& s) { s.cgroup_cpus = 1.5; }, "processors", true},
      {[](FoundSystem& s) { s.allowed_cpus = 8; }, "processors", true},
      {[](FoundSystem& s) { s.transparent_huge_pages = "never"; }, "huge_pages", true},
      {[](FoundSystem& s) { s.clock_source = "hpet"; }, "clock", true},
      {[](FoundSystem& s) { s.clock_steps_back_nanoseconds = 40; }, "clock", true},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(i);
    CAPTURE(cases[i].key);
    const auto is_warning = [&](const std::string& text) {
      return text == cases[i].key + ": warning" || text == cases[i].key + ": warning, needed";
    };
    const Texts on_gpus = differences(RunsOn::cuda, cases[i].change);
    REQUIRE(on_gpus.size() == 1);
    CHECK(is_warning(on_gpus.front()));
    const Texts on_processors = differences(RunsOn::cpu, cases[i].change);
    CHECK(on_processors.size() == (cases[i].on_processors ? 1 : 0));
  }
}

TEST_CASE("doctor: a driver is installed, or the machine started anew where the kernel has another version") {
  const auto mend_of = [](bool kernel_differs) {
    FoundSystem system = in_order();
    system.machine.gpus.clear();
    system.machine.driver.works = false;
    system.machine.driver.problem = "it does not start";
    system.machine.driver.kernel_differs = kernel_differs;
    for (const Finding& finding : findings_of(system, RunsOn::cuda)) {
      if (finding.key == "driver") return finding.mend;
    }
    return std::string();
  };
  CHECK(mend_of(true) == "reboot");
  CHECK(mend_of(false) == "apt-get install nvidia-driver && modprobe nvidia");
}

TEST_CASE("doctor: clocks that somebody set, and an idle GPU, are in order") {
  CHECK(differences(RunsOn::cuda, [](FoundSystem& s) {
          s.machine.gpus[0].throttle_reasons = Texts{"idle", "application clocks are set"};
        }).empty());
}

TEST_CASE("doctor: InfiniBand locks memory also for processors") {
  CHECK(differences(RunsOn::cpu, [](FoundSystem& s) {
          s.machine.nics.emplace_back();
          s.machine.nics.back().kind = "InfiniBand";
          s.locked_memory_bytes = 8 * kMiB;
        }) == Texts{"locked_memory: warning"});
}

TEST_CASE("doctor: GPUs that are not there are no subject of a run on processors") {
  FoundSystem system = in_order();
  system.machine.gpus.clear();
  system.machine.driver = {false, "there is no NVIDIA driver here", {}, {}};
  CHECK(reports::device_of(system) == RunsOn::cpu);
  const std::vector<Finding> findings = findings_of(system, RunsOn::cpu);
  CHECK(std::none_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.key == "driver" || finding.key == "nccl";
  }));
}

TEST_CASE("doctor: the wheels that mend a missing library are of the driver's CUDA") {
  const auto mend_of = [](std::int64_t cuda, const std::string& key) {
    FoundSystem system = in_order();
    system.machine.driver.cuda_version = cuda;
    system.cuda_runtime.file.clear();
    system.nccl.file.clear();
    for (const Finding& finding : findings_of(system, RunsOn::cuda)) {
      if (finding.key == key) return finding.mend;
    }
    return std::string();
  };
  CHECK(mend_of(12080, "cuda_runtime") == "pip install nvidia-cuda-runtime-cu12");
  CHECK(mend_of(13000, "cuda_runtime") == "pip install nvidia-cuda-runtime");
  CHECK(mend_of(13000, "nccl") == "pip install nvidia-nccl-cu13");
  CHECK(mend_of(11080, "nccl") == "pip install nvidia-nccl-cu11");
}

TEST_CASE("doctor: answers by the schema") {
  FoundSystem broken = in_order();
  broken.machine.gpus[0].mig = true;
  broken.nccl.file.clear();
  broken.nccl.version.reset();
  std::vector<test::Document> answers;
  for (const FoundSystem& system : {in_order(), broken}) {
    for (const RunsOn device : {RunsOn::cpu, RunsOn::cuda}) {
      const reports::Report report = reports::doctor_report("0.0.0", device, findings_of(system, device));
      answers.push_back({"doctor", json::parse(reports::write(report, reports::Format::json))});
    }
  }
  CHECK(answers[1].document["suffices"] == true);
  CHECK(answers[2].document["suffices"] == true);
  CHECK(answers[3].document["suffices"] == false);
  if (!test::can_validate()) return;
  for (const std::string& violation : test::schema_violations(answers)) FAIL_CHECK(violation);
}
