#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/command.hpp"

using namespace zeroplan::test;
using nlohmann::json;

namespace {

constexpr std::string_view kFits = "fit gpt2 --hw v100-32gb --gpus 8 --micro-batch 1";
constexpr std::string_view kDoesNotFit = "fit gpt2-xl --hw v100-32gb --gpus 4 --micro-batch 8";

std::string with(std::string_view command, std::string_view more) {
  return std::string(command) + ' ' + std::string(more);
}

// Bad input: exit code 2, nothing on standard output, one line per problem in our style.
CommandResult refused(std::string_view line, std::size_t problems = 1) {
  CommandResult result = run_command(line);
  CAPTURE(line);
  CAPTURE(result.err);
  CHECK(result.exit_code == 2);
  CHECK(result.out.empty());
  CHECK(static_cast<std::size_t>(std::count(result.err.begin(), result.err.end(), '\n')) == problems);
  std::size_t begin = 0;
  for (std::size_t i = 0; i < problems && begin < result.err.size(); ++i) {
    CHECK(result.err.substr(begin).starts_with("zeroplan: error: "));
    begin = result.err.find('\n', begin) + 1;
  }
  return result;
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("exit codes: 0 yes, 1 no") {
  CHECK(run_command(kFits).exit_code == 0);
  CHECK(run_command(kDoesNotFit).exit_code == 1);
  CHECK(run_command("compare gpt2 --hw v100-32gb --gpus 8").exit_code == 0);
  CHECK(run_command("models list").exit_code == 0);
  CHECK(run_command("hw list").exit_code == 0);
  CHECK(run_command("explain").exit_code == 0);
  CHECK(run_command("--help").exit_code == 0);
  // The commit is git's own word of it.
  const std::string version = run_command("--version").out;
  CHECK(version.starts_with("zeroplan 0.1.0 (commit "));
  CHECK(version.ends_with(")\n"));
}

TEST_CASE("-q prints nothing and keeps the exit code") {
  CHECK(run_command(with(kFits, "-q")).out.empty());
  CHECK(run_command(with(kDoesNotFit, "-q")).out.empty());
  CHECK(run_command(with(kDoesNotFit, "-q")).exit_code == 1);
}

TEST_CASE("bad input names the option and the nearest valid one") {
  CHECK(has(refused("fit gpt2 --hw v100-32gb --zer0 1").err, "--zer0: unknown option; nearest: --zero"));
  CHECK(has(refused("fot gpt2").err, "nearest: fit"));
  CHECK(has(refused("--versoin").err, "nearest: --version"));
  CHECK(has(refused("fit gpt2-xxl --hw v100-32gb").err, "nearest"));
  CHECK(has(refused("fit gpt2 --hw v100-33gb").err, "nearest"));
  CHECK(has(refused("fit gpt2 --hw v100-32gb -o jsno").err, "nearest: json"));
  CHECK(has(refused("explain peek_bytes gpt2 --hw v100-32gb").err, "nearest: peak_bytes"));
  CHECK(has(refused("models shw gpt2").err, "nearest: show"));
  CHECK(has(refused("fit gpt2 --hw v100-32gb --set zer=1").err, "nearest: zero"));
}

TEST_CASE("bad input: values, missing and surplus arguments") {
  CHECK(has(refused("fit --hw v100-32gb").err, "MODEL: missing"));
  CHECK(has(refused("fit gpt2").err, "--hw: missing"));
  CHECK(has(refused("fit gpt2 gpt2-xl --hw v100-32gb").err, "unexpected argument \"gpt2-xl\""));
  CHECK(has(refused("fit gpt2 --hw v100-32gb --gpus 14 --tp 7", 3).err, "--tp"));
  CHECK(has(refused("fit gpt2 --hw v100-32gb --bucket 10G").err, "GiB"));
  CHECK(has(refused("fit gpt2 --hw v100-32gb --zero").err, "--zero: a value is missing"));
  CHECK(has(refused("fit gpt2 --hw v100-32gb --zero -1").err, "--zero"));
  CHECK(has(refused("fit gpt2 --hw v100-32gb --zero 1 --zero 2").err, "--zero: given twice"));
  CHECK(has(refused("fit gpt2 --hw v100-32gb --tp 1 --mp 2").err, "--tp: given twice"));
  CHECK(has(refused("fit gpt2 --hw v100-32gb --set tp=1 --set mp=2").err, "given twice"));
  CHECK(has(refused("fit gpt2 --hw v100-32gb --set tp").err, "KEY=VALUE"));
  CHECK(has(refused("fit gpt2 --hw v100-32gb -f /nonexistent.yaml").err, "/nonexistent.yaml"));
  CHECK(has(refused("fit gpt2 --hw v100-32gb -f /").err, "/"));
  CHECK(has(refused("fit nosuch --hw v100-32gb").err, "nosuch"));
  refused("models");
  refused("models show");
  refused("models list more");
  refused("hw show");
  refused("hw show v100-32gb more");
}

TEST_CASE("all errors in one pass") {
  const CommandResult result =
      refused("fit gpt2 --hw v100-32gb --zero 7 --micro-batch x --sqe 3 --nods 2", 4);
  CHECK(has(result.err, "--sqe"));
  CHECK(has(result.err, "--nods"));
  refused("fit gpt2 --hw v100-32gb --zero 7 --micro-batch x -o nothing", 3);
}

TEST_CASE("options win over --set, and --set over the file") {
  const TemporaryFolder folder;
  std::ofstream(folder.file("plan.yaml"))
      << "model: gpt2\nhw: v100-32gb\ngpus: 8\nzero: 1\nseq: 128\nmicro_batch: 2\n";
  const std::string file = "fit -o json -f " + folder.file("plan.yaml");
  json plan = json::parse(run_command(file).out)["inputs"]["plan"];
  CHECK(plan["zero_stage"] == 1);
  CHECK(plan["sequence"] == 128);
  plan = json::parse(run_command(file + " --set zero=2 --set seq=256 --seq 512").out)["inputs"]["plan"];
  CHECK(plan["zero_stage"] == 2);
  CHECK(plan["sequence"] == 512);
  CHECK(plan["micro_batch"] == 2);
  CHECK(json::parse(run_command(file + " gpt2-medium --hw a100-80gb").out)["inputs"]["model"]["name"] ==
        "gpt2-medium");
}

TEST_CASE("a switch takes its value after '='") {
  const json plan = json::parse(
      run_command(with(kFits, "-o json --dropout --contiguous-memory=off")).out)["inputs"]["plan"];
  CHECK(plan["dropout"] == true);
  CHECK(plan["contiguous_memory"] == false);
  CHECK(run_command("fit --dropout gpt2 --hw v100-32gb --gpus 8").exit_code == 0);
}

TEST_CASE("--out writes the whole answer, or nothing") {
  const TemporaryFolder folder;
  const std::string target = folder.file("answer.json");
  CHECK(run_command(with(kDoesNotFit, "-o json --out " + target)).exit_code == 1);
  CHECK(json::parse(read_file(target))["result"]["fits"] == false);
  CHECK(run_command(with(kFits, "-o json --out " + target)).out.empty());
  CHECK(json::parse(read_file(target))["result"]["fits"] == true);

  CHECK(has(refused(with(kFits, "--out " + folder.file("none/x"))).err, "--out"));
  CHECK(has(refused(with(kFits, "--out " + folder.path())).err, "it is a folder"));
  refused("fit nosuch --hw v100-32gb --out " + folder.file("not_written"));
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("--out keeps a link a link") {
  const TemporaryFolder folder;
  std::ofstream(folder.file("target")) << "old";
  std::filesystem::create_symlink("target", folder.file("link"));
  CHECK(run_command("models count gpt2 --out " + folder.file("link")).exit_code == 0);
  CHECK(std::filesystem::is_symlink(folder.file("link")));
  CHECK(read_file(folder.file("target")) == "124439808\n");
}

TEST_CASE("every command has help with examples") {
  for (const char* command : {"fit", "compare", "explain", "models", "hw", "doctor"}) {
    const CommandResult result = run_command(std::string(command) + " --help");
    CAPTURE(command);
    CHECK(result.exit_code == 0);
    CHECK(has(result.out, std::string("zeroplan ") + command));
    CHECK(has(result.out, "Examples:"));
  }
}

TEST_CASE("every format of every command is written") {
  for (const char* command :
       {"fit gpt2 --hw v100-32gb", "compare gpt2 --hw v100-32gb", "explain peak_bytes gpt2 --hw v100-32gb",
        "explain", "models list", "models show gpt2", "models count gpt2", "hw list", "hw show dgx2"}) {
    for (const char* format : {"table", "json", "jsonl", "csv", "md", "yaml"}) {
      CAPTURE(command);
      CAPTURE(format);
      const CommandResult result = run_command(std::string(command) + " -o " + format);
      CHECK(result.exit_code == 0);
      CHECK(result.err.empty());
      CHECK(result.out.size() > 5);
      CHECK(result.out.back() == '\n');
    }
  }
}

TEST_CASE("words of the field that are not modelled: as an option, a key and --set") {
  const std::string fit = "fit gpt2 --hw v100-32gb ";
  for (const char* option : {"--pp 4", "--pipeline=4", "--ep 2", "--cp 2", "--sp 2", "--lora", "--qlora",
                             "--fp8", "--sequence-parallel", "--virtual-pipeline 2", "--optimizer muon",
                             "--engine torchtitan", "--dtype fp8", "--set pp=4", "--offload nvme"}) {
    CHECK(has(refused(fit + option).err, "is not modelled yet"));
  }
  const TemporaryFolder folder;
  std::ofstream(folder.file("plan.yaml")) << "zero: 2\npp: 4\n";
  CHECK(has(refused("fit gpt2 --hw v100-32gb -f " + folder.file("plan.yaml")).err,
            "plan.yaml:2: pp: pipeline parallelism is not modelled yet"));
  CHECK(has(refused("fit gpt2 --hw v100-32gb --gradient-checkpointing").err, "this is --recompute full"));
}

// findings/executor.md, section 1.2, number 8.
TEST_CASE("a switch takes on or off behind a blank, and no other word") {
  const std::string rest = " gpt2 --hw dgx-a100 --zero 2 -o json";
  const auto plan = [](const std::string& line) {
    const CommandResult result = run_command("fit " + line);
    CAPTURE(line);
    CAPTURE(result.err);
    REQUIRE(result.exit_code != 2);
    return json::parse(result.out)["inputs"]["plan"];
  };
  for (const char* word : {"off", "no", "false"}) {
    CHECK(plan("--overlap " + std::string(word) + rest)["overlap"] == false);
  }
  for (const char* word : {"on", "yes", "true"}) {
    CHECK(plan("--dropout " + std::string(word) + rest)["dropout"] == true);
  }
  CHECK(plan("--dropout off" + rest)["dropout"] == false);
  CHECK(plan("--dropout" + rest)["dropout"] == true);  // MODEL is not its value
  CHECK(plan("gpt2 --dropout --hw dgx-a100 -o json")["dropout"] == true);
  CHECK(plan("gpt2 --hw dgx-a100 --tp 4 --partition-activations on -o json")["partition_activations"] ==
        true);
}

TEST_CASE("help where one looks for it") {
  const CommandResult alone = run_command("");
  CHECK(alone.exit_code == 2);
  CHECK(has(alone.err, "Usage: zeroplan COMMAND"));
  CHECK(has(alone.err, "  fit "));
  CHECK(run_command("help fit").out == run_command("fit --help").out);
  CHECK(run_command("help fit").exit_code == 0);
  CHECK(run_command("version").out == run_command("--version").out);
  CHECK(has(refused("help fitt").err, "nearest: fit"));
}

TEST_CASE("a model that is not there is answered with the ways to one") {
  for (const char* name : {"llama4-70b", "mamba-2.8b"}) {
    const std::string said = refused("fit " + std::string(name) + " --hw dgx2").err;
    CHECK(has(said, "zeroplan models list"));
    CHECK(has(said, "config.json"));
    CHECK(has(said, "layers=..,hidden=.."));
  }
  CHECK(has(refused("fit t5-11b --hw dgx2").err, "params=N"));
  const TemporaryFolder folder;
  std::ofstream(folder.file("config.json")) << R"({"model_type": "mamba", "hidden_size": 64})";
  CHECK(has(refused("fit " + folder.file("config.json") + " --hw dgx2").err, "params=N"));
}

TEST_CASE("what cannot be said is neither yes nor no, and names what is missing") {
  const std::string states = "fit params=7.5B --hw dgx2 --gpus 64 --zero 3";
  CHECK(run_command(states).exit_code == 5);
  CHECK(run_command(states).out.find("Missing: shape.") != std::string::npos);
  CHECK(run_command(with(states, "-q")).exit_code == 5);
  CHECK(run_command(with(states, "-q")).out.empty());
  CHECK(run_command("fit params=7.5B --hw dgx2 --gpus 1 -q").exit_code == 1);
}

TEST_CASE("host memory that is given answers what the machine's description leaves open") {
  const std::string offloaded = "fit llama2-7b --hw rtx-4090 --engine native --offload all -q";
  CHECK(run_command(offloaded).exit_code == 5);
  CHECK(run_command(with(offloaded, "--host-memory 64GiB")).exit_code == 1);  // 16 x 6.74e9 bytes: 100.4 GiB
  CHECK(run_command(with(offloaded, "--host-memory 128GiB")).exit_code == 0);
}
