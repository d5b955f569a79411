#include <doctest/doctest.h>

#include "tests/support/process.hpp"

using zeroplan::test::CommandResult;
using zeroplan::test::run_shell;

// GPT-2, Llama, Mistral and Qwen2 shapes; one file and several; F32, F16 and BF16; one rank and four.
TEST_CASE("weights that PyTorch made train as in PyTorch, and PyTorch reads what comes out") {
  // Debian's PyTorch belongs to Debian's Python.
  const std::string python = "/usr/bin/python3";
  if (run_shell(python + " -c 'import torch'").exit_code != 0) return;
  const CommandResult result =
      run_shell(python + " tests/tools/check_weights.py '" ZEROPLAN_BINARY "' --tolerance 1e-5");
  CAPTURE(result.out);
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  MESSAGE(result.out);
}

TEST_CASE("weights are refused where the model's names are not known, and where a run goes on") {
  const std::string program = "'" ZEROPLAN_BINARY "' validate ";
  const CommandResult other = run_shell(program + "opt-125m --weights absent --export out.safetensors");
  CHECK(other.exit_code == 2);
  CHECK(other.err.find("--weights: the Hugging Face names of opt-125m are not known") != std::string::npos);
  CHECK(other.err.find("--export: the Hugging Face names of opt-125m are not known") != std::string::npos);
  CHECK(run_shell(program + "gpt2 --weights absent --resume absent").exit_code == 2);
  const CommandResult absent = run_shell(program + "gpt2 --weights absent");
  CHECK(absent.exit_code == 2);
  CHECK(absent.err.find("\"absent\" cannot be read: there is no such file") != std::string::npos);
}
