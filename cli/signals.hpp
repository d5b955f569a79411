#pragma once

#include <array>
#include <csignal>
#include <string_view>

namespace zeroplan::cli {

// While it lives, the first SIGINT, SIGTERM or SIGUSR1 only asks for an end after the running step, and the
// second SIGINT or SIGTERM ends the process at once. SIGUSR1 is what mpirun and Slurm pass on to ranks; from then on it
// is ignored.
class EndAfterStep {
 public:
  // `speaks`: says on standard error that a signal came.
  explicit EndAfterStep(bool speaks);
  ~EndAfterStep();
  EndAfterStep(const EndAfterStep&) = delete;
  EndAfterStep& operator=(const EndAfterStep&) = delete;

  // The signal that came, or 0.
  static int signal();

 private:
  static constexpr std::array<int, 3> kSignals{SIGINT, SIGTERM, SIGUSR1};
  std::array<struct sigaction, kSignals.size()> before_{};  // what handled them before
};

// "SIGTERM"
std::string_view signal_name(int signal);

}  // namespace zeroplan::cli
