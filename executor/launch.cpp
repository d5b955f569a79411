#include "executor/launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <utility>

#include "executor/communicator/sockets/socket.hpp"
#include "planner/error.hpp"

namespace zeroplan::executor {

namespace {

constexpr std::int64_t kMostRanks = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kHighestPort = 65535;
constexpr std::size_t kShortestSecret = 16;

// Slurm gives steps that are not srun's (batch script, interactive shell, prologs) numbers from here on.
constexpr std::int64_t kFirstReservedStep = 0xfffffff0;

// Reads variables and collects what is wrong with them.
class Variables {
 public:
  explicit Variables(const EnvironmentLookup& lookup) : lookup_(lookup) {}

  bool has(const std::string& name) const { return lookup_(name).has_value(); }

  std::string text(const std::string& name) const { return lookup_(name).value_or(""); }

  // `fallback` where it is not set, and where it is wrong.
  std::int64_t number(const std::string& name, std::int64_t least, std::int64_t most, std::int64_t fallback) {
    const auto value = lookup_(name);
    if (!value) return fallback;
    std::int64_t number = 0;
    const char* end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, number);
    if (error == std::errc() && stop == end && number >= least && number <= most) return number;
    wrong(name, fmt::format("a whole number from {} to {}", least, most));
    return fallback;
  }

  // What the launcher always sets: missing is wrong too.
  std::int64_t required(const std::string& name, std::int64_t least, std::int64_t most,
                        const std::string& because) {
    if (!has(name)) missing(name, because);
    return number(name, least, most, least);
  }

  void missing(const std::string& name, const std::string& because) {
    problem(name, fmt::format("not set, but {}", because));
  }
  void wrong(const std::string& name, const std::string& expected) {
    problem(name, fmt::format("found {}, expected {}", quoted(text(name)), expected));
  }
  void problem(const std::string& name, std::string message) {
    problems_.add({.source = name, .line = 0, .key = "", .message = std::move(message)});
  }
  // Their values one behind another, with points between.
  std::string joined(std::initializer_list<const char*> names) const {
    std::string all;
    for (const char* name : names) {
      if (has(name)) all += (all.empty() ? "" : ".") + text(name);
    }
    return all;
  }
  void throw_if_any() const { problems_.throw_if_any(); }

 private:
  const EnvironmentLookup& lookup_;
  Problems problems_;
};

// The names under which one launcher says the same as the others.
struct Names {
  std::string ranks, rank, local_rank, local_ranks;
};

const Names kOpenMpi{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
                     "OMPI_COMM_WORLD_LOCAL_SIZE"};
const Names kPmi{"PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
const Names kTorchrun{"WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};

Launch read(Variables& variables, const Names& names) {
  const auto because = [&](const std::string& other) { return fmt::format("{} is", other); };
  Launch launch;
  launch.ranks = variables.required(names.ranks, 1, kMostRanks, because(names.rank));
  const std::int64_t last = variables.has(names.ranks) ? launch.ranks - 1 : kMostRanks;
  launch.rank = variables.required(names.rank, 0, last, because(names.ranks));
  launch.local_ranks = variables.number(names.local_ranks, 1, kMostRanks, 0);
  const std::int64_t last_local = launch.local_ranks == 0 ? kMostRanks : launch.local_ranks - 1;
  launch.local_rank = variables.number(names.local_rank, 0, last_local, 0);
  return launch;
}

bool is_step_of_srun(Variables& variables) {
  return variables.has("SLURM_STEP_ID") && variables.has("SLURM_PROCID") &&
         variables.number("SLURM_STEP_ID", 0, std::numeric_limits<std::uint32_t>::max(), 0) <
             kFirstReservedStep;
}

Launch read_slurm(Variables& variables) {
  Names names{variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", "SLURM_PROCID",
              "SLURM_LOCALID", ""};
  Launch launch = read(variables, names);
  launch.job = variables.joined({"SLURM_JOB_ID", "SLURM_STEP_ID"});
  // The ranks of this host, with commas between them.
  if (const std::string here = variables.text("SLURM_GTIDS"); !here.empty()) {
    launch.local_ranks = 1 + std::count(here.begin(), here.end(), ',');
  }
  return launch;
}

void read_secret(Launch& launch, Variables& variables) {
  launch.secret = variables.text("ZEROPLAN_SECRET");
  if (!launch.secret.empty() && launch.secret.size() < kShortestSecret) {
    variables.problem("ZEROPLAN_SECRET",
                      fmt::format("found {} characters, expected {} or more that nobody can guess",
                                  launch.secret.size(), kShortestSecret));
  } else if (launch.secret.empty() && !sockets::is_loopback(launch.master_address)) {
    variables.missing("ZEROPLAN_SECRET",
                      fmt::format("MASTER_ADDR is {}, which others can reach: set it to the same {} or more "
                                  "characters on every rank, such as those of openssl rand -hex 16",
                                  launch.master_address, kShortestSecret));
  }
}

// How many processes talk to each other, once it is known how many there are.
Launch connected(Launch launch, Variables& variables, bool through_mpi, const std::string& needs_master) {
  if (launch.ranks > 1 && through_mpi) launch.kind = Launch::Kind::mpi;
  if (launch.ranks > 1 && !through_mpi) {
    launch.kind = Launch::Kind::sockets;
    launch.master_address = variables.text("MASTER_ADDR");
    if (!variables.has("MASTER_ADDR")) {
      variables.missing("MASTER_ADDR", needs_master);
    } else if (launch.master_address.empty()) {
      variables.wrong("MASTER_ADDR", "the name or address of rank 0's host");
    } else {
      read_secret(launch, variables);
    }
    auto port = variables.required("MASTER_PORT", 1, kHighestPort, needs_master);
    if (variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True") port += port < kHighestPort ? 1 : -1;
    launch.master_port = static_cast<int>(port);
  }
  variables.throw_if_any();
  return launch;
}

}  // namespace

std::optional<std::string> environment_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

Launch detect_launch(const EnvironmentLookup& lookup, bool has_mpi) {
  Variables variables(lookup);
  const auto any_of = [&](const Names& names) {
    return variables.has(names.ranks) || variables.has(names.rank);
  };
  const auto both_of = [&](const Names& names) {
    return variables.has(names.ranks) && variables.has(names.rank);
  };
  const auto started_by = [](const std::string& launcher, const Launch& launch) {
    return fmt::format("{} started {} processes and this program was built without MPI", launcher,
                       launch.ranks);
  };
  const auto of_torchrun = [&] {
    Launch launch = read(variables, kTorchrun);
    launch.job = variables.joined({"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"});
    return connected(launch, variables, false, fmt::format("WORLD_SIZE is {}", launch.ranks));
  };
  if (variables.has("TORCHELASTIC_RUN_ID")) return of_torchrun();
  for (const Names& names : {kOpenMpi, kPmi}) {
    if (!any_of(names)) continue;
    const Launch launch = read(variables, names);
    return connected(launch, variables, has_mpi, started_by("mpirun", launch));
  }
  if (both_of(kTorchrun)) return of_torchrun();
  if (is_step_of_srun(variables)) {
    const Launch launch = read_slurm(variables);
    return connected(launch, variables, has_mpi, started_by("srun", launch));
  }
  if (any_of(kTorchrun)) return of_torchrun();
  variables.throw_if_any();
  return {};
}

}  // namespace zeroplan::executor
