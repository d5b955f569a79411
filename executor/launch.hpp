#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace zeroplan::executor {

// How this process was started, and so what its ranks are: threads of it, or processes of which it is one.
struct Launch {
  enum class Kind : std::uint8_t { threads, mpi, sockets };

  Kind kind = Kind::threads;
  std::int64_t rank = 0;
  std::int64_t ranks = 1;        // processes; threads are the caller's choice
  std::int64_t local_rank = 0;   // among those of this host
  std::int64_t local_ranks = 0;  // of this host; 0 where the launcher does not say
  std::string master_address;    // sockets
  int master_port = 0;           // sockets
  std::string secret;            // sockets: of the job; empty where it needs none
  std::string job;               // the launcher's name of it; empty where it has none
};

using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

// The environment of this process.
std::optional<std::string> environment_variable(const std::string& name);

// Reads what launchers leave in the environment. The first that is there counts:
//
//   torchrun       TORCHELASTIC_RUN_ID with the variables below, as it may itself run under the others
//   mpirun         OMPI_COMM_WORLD_SIZE, _RANK, _LOCAL_RANK, _LOCAL_SIZE (Open MPI); PMI_SIZE, PMI_RANK,
//                  MPI_LOCALRANKID, MPI_LOCALNRANKS (MPICH, Intel MPI)
//   by hand        RANK and WORLD_SIZE as for torchrun; LOCAL_RANK, LOCAL_WORLD_SIZE. Always sockets
//   srun           SLURM_STEP_NUM_TASKS or SLURM_NTASKS, SLURM_PROCID, SLURM_LOCALID, SLURM_GTIDS, but
//                  only in a step that srun started: batch scripts and shells of salloc have most of these as
//                  well, are one process, and have no SLURM_STEP_ID or one of Slurm's reserved numbers
//
// Where mpirun or srun started the process, its ranks talk through MPI, or where this program has none
// through sockets, which need MASTER_ADDR and MASTER_PORT: the host of rank 0 and a port that is free there.
// Then ZEROPLAN_SECRET is needed as well, the same 16 or more characters on every rank, unless the master's
// address is the loopback: who does not know it cannot join. One rank is threads, whoever started it. torchrun's agent itself listens at MASTER_PORT when
// TORCHELASTIC_USE_AGENT_STORE is True; the ranks then meet one port above.
//
// Throws ConfigurationError that names every variable that is missing, malformed or out of range.
Launch detect_launch(const EnvironmentLookup& lookup, bool has_mpi);

}  // namespace zeroplan::executor
