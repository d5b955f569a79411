#include "cli/signals.hpp"

#include <unistd.h>

#include <cstddef>

namespace zeroplan::cli {

namespace {

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): a handler gets nothing but the number, and what it
// says has to be where it finds it
volatile std::sig_atomic_t came = 0;
volatile std::sig_atomic_t says_so = 0;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

void default_handling(int signal) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action, nullptr);
}

extern "C" void ask_for_end(int signal) {
  came = signal;
  default_handling(SIGINT);
  default_handling(SIGTERM);
  if (says_so == 0) return;
  constexpr std::string_view kText = "zeroplan: ending after this step; a second signal ends at once\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText.data(), kText.size());
}

}  // namespace

EndAfterStep::EndAfterStep(bool speaks) {
  came = 0;
  says_so = speaks ? 1 : 0;
  struct sigaction action {};
  action.sa_handler = ask_for_end;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &action, &before_[i]);
}

EndAfterStep::~EndAfterStep() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  // A launcher passes its signal to one rank after the other. It may reach one that has ended with the others already.
  if (before_.back().sa_handler == SIG_DFL) (void)std::signal(kSignals.back(), SIG_IGN);
}

int EndAfterStep::signal() { return came; }

std::string_view signal_name(int signal) {
  switch (signal) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGUSR1:
      return "SIGUSR1";
    default:
      return "a signal";
  }
}

}  // namespace zeroplan::cli
