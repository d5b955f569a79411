#include "executor/launch.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>

#include "planner/error.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;
using Kind = Launch::Kind;
using Environment = std::map<std::string, std::string>;

namespace {

Launch detect(const Environment& environment, bool has_mpi) {
  return detect_launch(
      [&](const std::string& name) -> std::optional<std::string> {
        const auto found = environment.find(name);
        if (found != environment.end()) return found->second;
        // Every job has one, unless a test says otherwise.
        if (name == "ZEROPLAN_SECRET") return "0123456789abcdef";
        return std::nullopt;
      },
      has_mpi);
}

std::string refusal(const Environment& environment, bool has_mpi = true) {
  try {
    detect(environment, has_mpi);
  } catch (const ConfigurationError& error) {
    return error.what();
  }
  return "accepted";
}

Environment with(Environment environment, const std::string& name, const std::string& value) {
  environment[name] = value;
  return environment;
}

Environment without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

// As the launchers' documentation has them: rank 5 of 8, the second of four on its host.
const Environment kOpenMpi{{"OMPI_COMM_WORLD_SIZE", "8"},
                           {"OMPI_COMM_WORLD_RANK", "5"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
const Environment kHydra{
    {"PMI_SIZE", "8"}, {"PMI_RANK", "5"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "4"}};
const Environment kSrun{{"SLURM_JOB_ID", "77"},    {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "8"},
                        {"SLURM_NTASKS", "8"},     {"SLURM_PROCID", "5"},  {"SLURM_LOCALID", "1"},
                        {"SLURM_GTIDS", "4,5,6,7"}};
const Environment kTorchrun{{"RANK", "5"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "4"},
                            {"MASTER_ADDR", "node1"},
                            {"MASTER_PORT", "29500"}};

}  // namespace

TEST_CASE("launch: each launcher's rank 5 of 8, the second of four on its host") {
  struct Case {
    Environment environment;
    Kind kind;
  };
  for (const Case& c : std::vector<Case>{{kOpenMpi, Kind::mpi},
                                         {kHydra, Kind::mpi},
                                         {kSrun, Kind::mpi},
                                         {without(kSrun, "SLURM_STEP_NUM_TASKS"), Kind::mpi},
                                         {kTorchrun, Kind::sockets}}) {
    const Launch launch = detect(c.environment, true);
    CHECK(launch.kind == c.kind);
    CHECK(launch.rank == 5);
    CHECK(launch.ranks == 8);
    CHECK(launch.local_rank == 1);
    CHECK(launch.local_ranks == 4);
  }
  const Launch launch = detect(kTorchrun, true);
  CHECK(launch.master_address == "node1");
  CHECK(launch.master_port == 29500);
}

TEST_CASE("launch: threads where nothing was launched") {
  const std::vector<Environment> environments{
      {},
      {{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}, {"LOCAL_RANK", "0"}},
      {{"WORLD_SIZE", "1"}, {"RANK", "0"}},
      {{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}},
      // A batch script of eight tasks: one process, in no step, or in the one that Slurm keeps for it.
      without(with(without(kSrun, "SLURM_STEP_NUM_TASKS"), "SLURM_PROCID", "0"), "SLURM_STEP_ID"),
      with(kSrun, "SLURM_STEP_ID", "4294967291"),
      // A shell of salloc.
      with(kSrun, "SLURM_STEP_ID", "4294967290"),
      without(without(kSrun, "SLURM_STEP_ID"), "SLURM_PROCID"),
      // A shell that srun started, in an allocation of eight.
      with(with(kSrun, "SLURM_STEP_NUM_TASKS", "1"), "SLURM_PROCID", "0")};
  for (const Environment& environment : environments) {
    const Launch launch = detect(environment, true);
    CHECK(launch.kind == Kind::threads);
    CHECK(launch.rank == 0);
    CHECK(launch.ranks == 1);
  }
}

TEST_CASE("launch: without MPI, mpirun's and srun's ranks talk through sockets where there is a master") {
  for (Environment environment : {kOpenMpi, kHydra, kSrun}) {
    const std::string said = refusal(environment, false);
    CHECK(said.find("MASTER_ADDR: not set, but ") == 0);
    CHECK(said.find("\nMASTER_PORT: not set, but ") != std::string::npos);
    CHECK(said.find("started 8 processes and this program was built without MPI") != std::string::npos);

    environment["MASTER_ADDR"] = "10.0.0.1";
    environment["MASTER_PORT"] = "4000";
    const Launch launch = detect(environment, false);
    CHECK(launch.kind == Kind::sockets);
    CHECK(launch.rank == 5);
    CHECK(launch.ranks == 8);
    CHECK(launch.master_address == "10.0.0.1");
    CHECK(launch.master_port == 4000);
    CHECK(detect(environment, true).kind == Kind::mpi);
  }
}

TEST_CASE("launch: what runs inside of what") {
  Environment both = kTorchrun;
  both["WORLD_SIZE"] = "16";
  both["RANK"] = "9";
  // One torchrun on each of eight nodes, started by srun: the ranks are torchrun's.
  both.insert(kSrun.begin(), kSrun.end());
  CHECK(detect(both, true).ranks == 16);
  // mpirun in an allocation of Slurm starts its daemons with srun: the ranks are mpirun's.
  Environment mpirun = with(with(kSrun, "SLURM_STEP_NUM_TASKS", "2"), "SLURM_PROCID", "1");
  mpirun.insert(kOpenMpi.begin(), kOpenMpi.end());
  CHECK(detect(mpirun, true).ranks == 8);
  // A script that sets some of torchrun's variables for others to read does not turn srun into it.
  CHECK(detect(with(kSrun, "WORLD_SIZE", "8"), true).kind == Kind::mpi);
  // One torchrun on each of two nodes, started by mpirun.
  Environment nested = with(kTorchrun, "TORCHELASTIC_RUN_ID", "none");
  nested.insert(kOpenMpi.begin(), kOpenMpi.end());
  CHECK(detect(nested, true).kind == Kind::sockets);
}

TEST_CASE("launch: where torchrun's agent has the port, ranks meet beside it") {
  const Environment agent = with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "True");
  CHECK(detect(agent, true).master_port == 29501);
  CHECK(detect(with(agent, "MASTER_PORT", "65535"), true).master_port == 65534);
  CHECK(detect(with(agent, "TORCHELASTIC_USE_AGENT_STORE", "False"), true).master_port == 29500);
}

TEST_CASE("launch: what is half set or malformed is refused with its name and value") {
  struct Case {
    Environment environment;
    std::string text;
  };
  const std::vector<Case> cases{
      {without(kTorchrun, "RANK"), "RANK: not set, but WORLD_SIZE is"},
      {without(kTorchrun, "WORLD_SIZE"), "WORLD_SIZE: not set, but RANK is"},
      {without(kTorchrun, "MASTER_ADDR"), "MASTER_ADDR: not set, but WORLD_SIZE is 8"},
      {without(kTorchrun, "MASTER_PORT"), "MASTER_PORT: not set, but WORLD_SIZE is 8"},
      {without(kOpenMpi, "OMPI_COMM_WORLD_RANK"),
       "OMPI_COMM_WORLD_RANK: not set, but OMPI_COMM_WORLD_SIZE is"},
      {without(kHydra, "PMI_SIZE"), "PMI_SIZE: not set, but PMI_RANK is"},
      {without(without(kSrun, "SLURM_STEP_NUM_TASKS"), "SLURM_NTASKS"),
       "SLURM_NTASKS: not set, but SLURM_PROCID is"},
      {with(kTorchrun, "RANK", "8"), "RANK: found \"8\", expected a whole number from 0 to 7"},
      {with(kTorchrun, "RANK", "-1"), "RANK: found \"-1\", expected a whole number from 0 to 7"},
      {with(kTorchrun, "WORLD_SIZE", "0"),
       "WORLD_SIZE: found \"0\", expected a whole number from 1 to 2147483647"},
      {with(kTorchrun, "WORLD_SIZE", "8 "), "WORLD_SIZE: found \"8 \", expected a whole number"},
      {with(kTorchrun, "WORLD_SIZE", ""), "WORLD_SIZE: found \"\", expected a whole number"},
      {with(kTorchrun, "LOCAL_RANK", "4"), "LOCAL_RANK: found \"4\", expected a whole number from 0 to 3"},
      {with(kTorchrun, "LOCAL_WORLD_SIZE", "x"), "LOCAL_WORLD_SIZE: found \"x\", expected a whole number"},
      {with(kTorchrun, "MASTER_PORT", "65536"),
       "MASTER_PORT: found \"65536\", expected a whole number from 1 to"},
      {with(kTorchrun, "MASTER_ADDR", ""),
       "MASTER_ADDR: found \"\", expected the name or address of rank 0's host"},
      {with(kSrun, "SLURM_STEP_ID", "first"),
       "SLURM_STEP_ID: found \"first\", expected a whole number from 0 to"},
      {with(kSrun, "SLURM_PROCID", "99999999999999999999"), "SLURM_PROCID: found \"99999999999999999999\""}};
  for (const Case& c : cases) {
    const std::string said = refusal(c.environment);
    CAPTURE(said);
    CHECK(said.find(c.text) == 0);
  }
  const std::string two = refusal(with(with(kTorchrun, "RANK", "a"), "MASTER_PORT", "b"));
  CHECK(two.find("RANK: found \"a\"") == 0);
  CHECK(two.find("\nMASTER_PORT: found \"b\"") != std::string::npos);
}

TEST_CASE("launch: an address that others can reach needs a secret of some length, which is not shown") {
  const Environment base{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}};
  for (const char* loopback : {"localhost", "127.0.0.1", "127.8.9.1", "::1"}) {
    CAPTURE(loopback);
    const Environment here = with(with(base, "MASTER_ADDR", loopback), "ZEROPLAN_SECRET", "");
    CHECK(detect(here, false).secret.empty());
    CHECK(detect(with(base, "MASTER_ADDR", loopback), false).secret == "0123456789abcdef");
  }
  for (const char* reachable :
       {"node1", "10.0.0.1", "0.0.0.0", "127.example.com", "localhost.example.com", "::"}) {
    CAPTURE(reachable);
    const Environment there = with(base, "MASTER_ADDR", reachable);
    CHECK(detect(there, false).secret == "0123456789abcdef");
    CHECK(refusal(with(there, "ZEROPLAN_SECRET", ""), false)
              .find("ZEROPLAN_SECRET: not set, but MASTER_ADDR is ") == 0);
    const std::string weak = refusal(with(there, "ZEROPLAN_SECRET", "hunter2hunter2!"), false);
    CHECK(weak == "ZEROPLAN_SECRET: found 15 characters, expected 16 or more that nobody can guess");
  }
}

TEST_CASE("launch: the launcher's name of the job is part of it, by hand there is none") {
  Environment hand{{"RANK", "1"},
                   {"WORLD_SIZE", "2"},
                   {"MASTER_ADDR", "node1"},
                   {"MASTER_PORT", "29500"},
                   {"SLURM_JOB_ID", "77"}};
  CHECK(detect(hand, false).job.empty());
  hand["TORCHELASTIC_RUN_ID"] = "abc";
  hand["TORCHELASTIC_RESTART_COUNT"] = "2";
  CHECK(detect(hand, false).job == "abc.2");
  const Environment slurm{{"SLURM_JOB_ID", "77"},  {"SLURM_STEP_ID", "3"}, {"SLURM_PROCID", "1"},
                          {"SLURM_NTASKS", "2"},   {"SLURM_LOCALID", "0"}, {"MASTER_ADDR", "node1"},
                          {"MASTER_PORT", "29500"}};
  CHECK(detect(slurm, false).job == "77.3");
}
