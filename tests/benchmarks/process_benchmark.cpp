#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

// `zeroplan fit` as a user starts it: a new process each time, its output thrown away.

namespace {

int run_process(char* const* arguments, const posix_spawn_file_actions_t& actions) {
  pid_t child = 0;
  if (posix_spawn(&child, arguments[0], &actions, nullptr, arguments, environ) != 0) return -1;
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

void cold_fit(benchmark::State& state, const char* model, const char* hardware, const char* gpus,
              int expected) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  std::array<const char*, 10> words{ZEROPLAN_BINARY, "fit", model,    "--hw", hardware,
                                    "--gpus",        gpus,  "--zero", "2"};
  // posix_spawn takes char* const[], and changes nothing.
  char* const* arguments =
      const_cast<char* const*>(words.data());  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  for (auto _ : state) {
    if (run_process(arguments, actions) != expected) {
      state.SkipWithError("zeroplan fit did not answer as expected");
      break;
    }
  }
  posix_spawn_file_actions_destroy(&actions);
}
BENCHMARK_CAPTURE(cold_fit, yes, "gpt2-xl", "dgx2", "16", 0)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(cold_fit, no_with_suggestions, "gpt3-175b", "dgx-a100", "64", 1)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
