#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/process.hpp"

// `zeroplan validate` as a user runs it.

using nlohmann::json;
using zeroplan::test::CommandResult;
using zeroplan::test::run_shell;
using zeroplan::test::TemporaryFolder;

namespace {

const std::string kProgram = "'" ZEROPLAN_BINARY "' validate ";
const std::string kModel = "layers=3,hidden=48,heads=4,vocab=259 --seq 24 ";

json record_of(const std::string& arguments, int expected_exit_code = 0) {
  const CommandResult result = run_shell(kProgram + kModel + arguments + " -o json");
  CAPTURE(arguments);
  CAPTURE(result.err);
  CHECK(result.exit_code == expected_exit_code);
  return json::parse(result.out);
}

json losses_of(const json& record) {
  json losses = json::array();
  for (const json& step : record["measured"]["steps"]) losses.push_back(step["loss"]);
  return losses;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

// findings/executor.md, section 1.2, number 5: each of these was left out, or run as another model.
// Windows, capped scores, ALiBi, a narrow table with projections, norms over heads: each is run as it is
// predicted, by both kernels.
TEST_CASE("models of every computation agree with their prediction") {
  const TemporaryFolder folder;
  const std::string path = folder.file("model.yaml");
  const std::string shape =
      "schema: zeroplan.model/1\nname: mine\nhidden: 48\nlayers: 4\nheads: 6\nffn: 96\ngated_ffn: true\n"
      "activation: silu\nvocabulary: 259\ntied_embeddings: true\nnorm: rms_norm\nbiases: none\n";
  const std::string narrow = "position: learned\nposition_rows: 200\nembedding_width: 20\n";
  for (const std::string& keys :
       {std::string("position: rotary\nattention_window: {kind: sliding, size: 40, full_every: 2}\n"),
        std::string("position: rotary\nattention_window: {kind: chunked, size: 72}\nattention_soft_cap: 3\n"),
        std::string("position: alibi\nattention_window: {kind: sliding, size: 5}\n"), narrow,
        std::string("position: rotary\nquery_key_norm: head\nnorm_placement: branch\n")}) {
    std::ofstream(path) << shape << keys;
    const bool normed = keys.find("query_key_norm") != std::string::npos;
    for (const std::string& plan :
         {std::string(" --attention flash"), std::string(" --attention materialized")}) {
      const std::string degrees = normed ? " --gpus 2" : " --gpus 4 --tp 2";
      const CommandResult result = run_shell(fmt::format(
          "{}'{}' --seq 190 --dtype fp32 --zero 3{}{} --steps 2 -o json", kProgram, path, degrees, plan));
      CAPTURE(keys);
      CAPTURE(plan);
      CAPTURE(result.err);
      REQUIRE(result.exit_code == 0);
      CHECK(json::parse(result.out)["outcome"] == "agrees");
    }
  }
}

TEST_CASE("every kind of plan agrees with its prediction") {
  for (const char* plan :
       {"--dtype fp32", "--gpus 3 --zero 1 --dtype fp16", "--gpus 2 --zero 2 --dtype bf16 --grad-accum 2",
        "--gpus 4 --tp 2 --zero 3 --recompute full --partition-activations --offload-activations",
        "--gpus 2 --zero 3 --offload all --dtype fp16", "--gpus 2 --zero 2 --contiguous-memory=off",
        "--gpus 4 --tp 4 --recompute selective --attention materialized",
        "--gpus 2 --zero 1 --hw v100-32gb --device cpu --engine native --optimizer sgd-momentum",
        "--dropout --gpus 2 --zero 3 --attention materialized --recompute full --dropout-rate 0.5",
        "--dropout --gpus 4 --tp 2 --zero 1 --grad-accum 2 --attention materialized --dtype bf16",
        // Engines of others: what they hold for themselves is told apart from what is written.
        "--gpus 2 --zero 3 --engine fsdp2 --dtype bf16",
        "--gpus 2 --zero 3 --engine llm-foundry --dtype fp16",
        "--gpus 2 --zero 2 --engine deepspeed --dtype bf16",
        "--gpus 2 --zero 1 --engine megatron --dtype fp16"}) {
    const json record = record_of(plan);
    CHECK(record["schema"] == "zeroplan.validation/1");
    CHECK(record["outcome"] == "agrees");
    CHECK(record["comparison"].size() >= 8);
    for (const json& row : record["comparison"]) {
      CAPTURE(row.dump());
      CHECK(row["ok"] == true);
    }
    CHECK(record["measured"]["steps"].size() == 4);
    CHECK(record["measured"]["step_seconds"] > 0);
    CHECK(record["environment"]["logical_cpus"] == std::thread::hardware_concurrency());
  }
}

// findings/executor.md, section 1.2, number 1: the communicator demanded one type, and an engine that is only
// arithmetic failed in its first step.
// accelerate's FULL_SHARD with mixed precision: partitions are fp32, and what is gathered is 16 bits.
TEST_CASE("N19: a file of full sharding with mixed precision runs, and moves what was predicted") {
  const std::string model = "layers=2,hidden=64,heads=4,vocab=128 --seq 16 --steps 1 ";
  const std::string file = "-f '" ZEROPLAN_TEST_DATA "/reports/N19_full_shard.yaml' ";
  for (const char* more : {"", "--dtype fp16 ", "--gpus 4 --tp 2 "}) {
    CAPTURE(more);
    const CommandResult result = run_shell(fmt::format("{}{}{}{}-o json", kProgram, model, file, more));
    CAPTURE(result.err);
    REQUIRE(result.exit_code == 0);
    const json record = json::parse(result.out);
    CHECK(record["inputs"]["plan"]["zero_stage"] == 3);
    bool gathered = false;
    for (const json& row : record["comparison"]) {
      if (!row["key"].get<std::string>().starts_with("moved.data_parallel.all_gather")) continue;
      gathered = true;
      CHECK(row["predicted"] > 0);
      CHECK(row["measured"] == row["predicted"]);
    }
    CHECK(gathered);
  }
  for (const char* stage : {"0", "1", "2", "3"}) {
    const CommandResult estimator = run_shell(fmt::format(
        "{}{}--gpus 2 --engine deepspeed-estimator --zero {} --dtype bf16", kProgram, model, stage));
    CHECK(estimator.exit_code == 3);
    CHECK(contains(estimator.out, "not run: "));
  }
}

TEST_CASE("the record is written down before the run, and again after it") {
  const TemporaryFolder folder;
  const std::string file = folder.file("run.json");
  // A token that the vocabulary lacks is found when it is read.
  const std::string data = folder.file("tokens.bin");
  run_shell("head -c 100000 /dev/zero | tr '\\0' '\\377' > '" + data + "'");
  const CommandResult failed =
      run_shell(kProgram + kModel + "--data '" + data + "' -o json --out '" + file + "'");
  CHECK(failed.exit_code == 2);
  CHECK(contains(failed.err, "has the token 65535 as its token "));
  const json before = json::parse(zeroplan::test::read_file(file));
  CHECK(before["outcome"] == "predicted");
  CHECK(before["measured"].is_null());
  CHECK(before["predicted"]["peak_bytes"] > 0);

  const CommandResult result = run_shell(kProgram + kModel + "--dtype fp32 -o json --out '" + file + "'");
  CHECK(result.exit_code == 0);
  CHECK(result.out.empty());
  CHECK(contains(result.err, "Predicted per GPU"));
  CHECK(contains(result.err, "step 4/4  loss"));
  CHECK(json::parse(zeroplan::test::read_file(file))["outcome"] == "agrees");
}

TEST_CASE("training on a file is saved and goes on where it was, also on more ranks") {
  const TemporaryFolder folder;
  const std::string text = "--data '" ZEROPLAN_SOURCE "/README.md' --dtype fp32 --rate 1e-2 --warm-up 0 ";
  const std::string file = "'" + folder.file("state") + "' ";
  json whole = losses_of(record_of(text + "--micro-batch 4 --steps 8"));
  CHECK(whole.back() < whole.front());
  json parts = losses_of(record_of(text + "--micro-batch 4 --steps 3 --save " + file));
  const json record = record_of(text + "--micro-batch 4 --steps 5 --resume " + file);
  CHECK(record["measured"]["steps"][0]["step"] == 4);
  for (const json& loss : losses_of(record)) parts.push_back(loss);
  CHECK(parts == whole);
  const json wider =
      losses_of(record_of(text + "--gpus 4 --zero 3 --micro-batch 1 --steps 5 --resume " + file));
  for (std::size_t i = 0; i < wider.size(); ++i) {
    CHECK(wider[i].get<double>() == doctest::Approx(whole[i + 3].get<double>()).epsilon(1e-5));
  }
  const CommandResult other = run_shell(kProgram + kModel + "--dtype bf16 --resume " + file);
  CHECK(other.exit_code == 2);
  CHECK(contains(other.err, "dtype: found \"fp32\", expected \"bf16\""));
}

TEST_CASE("what cannot run is refused with the reason, and running out of memory is a reported outcome") {
  const CommandResult large = run_shell(kProgram + "gpt2-xl --hw v100-16gb --device cpu --micro-batch 64");
  CHECK(large.exit_code == 3);
  CHECK(contains(large.out, "not run: "));
  CHECK(contains(large.out, "--force"));
  const CommandResult here = run_shell(kProgram + "gpt2-xl --gpus 512 --zero 0");
  CHECK(here.exit_code == 3);

  // The limit stands for a machine without the memory.
  const CommandResult out_of_memory = run_shell("ulimit -v 2000000; " + kProgram + "gpt2-xl --force -o json");
  CHECK(out_of_memory.exit_code == 4);
  const json record = json::parse(out_of_memory.out);
  CHECK(record["outcome"] == "failed");
  CHECK(contains(record["reason"], "cannot allocate"));

  for (const char* arguments : {"gpt2 --engine deepspeed-estimator", "params=1B", "mixtral-8x7b --force",
                                "qwen3-0.6b --gpus 2 --tp 2", "llama3.2-1b --tp 16"}) {
    CAPTURE(arguments);
    CHECK(run_shell(kProgram + arguments).exit_code == 3);
  }
}

// findings/executor.md, section 1.2, number 7: this ended in std::bad_alloc, called a defect of zeroplan.
TEST_CASE("more ranks than there can be threads are refused in words") {
  const CommandResult most = run_shell(kProgram + kModel + "--dtype fp32 --gpus 1025");
  CHECK(most.exit_code == 3);
  CHECK(contains(most.out, "1025 ranks as threads of one process; the most is 1024"));
  // The limit stands for a machine without the memory for so many stacks.
  const CommandResult fewer =
      run_shell("ulimit -v 3000000; " + kProgram + kModel + "--dtype fp32 --gpus 1024 --steps 1");
  CHECK(fewer.exit_code == 3);
  CHECK(contains(fewer.out, "1024 ranks as threads of one process: "));
  CHECK(!contains(fewer.out + fewer.err, "defect"));
}

TEST_CASE("a record says when the environment forces lesser kernels, and whether ranks are pinned") {
  const CommandResult result =
      run_shell("OPENBLAS_CORETYPE=Nehalem " + kProgram + kModel + "--dtype fp32 --pin off -o json");
  CHECK(result.exit_code == 0);
  const json measured = json::parse(result.out)["measured"];
  CAPTURE(measured["device"].dump());
  CHECK(!contains(measured["device"], "pinned"));
  if (contains(measured["device"], "Nehalem kernels")) {
    CHECK(contains(measured["note"], "OPENBLAS_CORETYPE to Nehalem"));
    CHECK(contains(measured["note"], "SSE kernels"));
  }
  const CommandResult free =
      run_shell("unset OPENBLAS_CORETYPE; " + kProgram + kModel + "--dtype fp32 -o json");
  CHECK(json::parse(free.out)["measured"]["note"].is_null());
}

TEST_CASE(
    "the first steps are taken again on one rank: the same bits in fp32, and within rounding elsewhere") {
  for (const auto& [plan, tolerance] :
       std::vector<std::pair<std::string, double>>{{"--gpus 3 --zero 3 --dtype fp32", 0},
                                                   {"--gpus 2 --zero 2 --offload optimizer --dtype fp32", 0},
                                                   {"--gpus 4 --tp 2 --zero 1 --dtype fp32", 1e-4},
                                                   {"--gpus 2 --zero 3 --engine fsdp2 --dtype bf16", 2e-2}}) {
    const json record = record_of(plan + " --against-one-rank 2");
    bool found = false;
    for (const json& row : record["comparison"]) {
      if (row["key"] != "one_rank.loss") continue;
      found = true;
      CHECK(row["predicted"] > 1);
      CHECK(row["tolerance_above"].get<double>() ==
            doctest::Approx(tolerance * row["predicted"].get<double>()));
    }
    CHECK(found);
  }
}

// findings/executor.md, section 1.2, number 4; number 2, of runs that are long, is held by
// tests/executor/training_run_test.cpp: calls that a rank has noted are folded.
TEST_CASE("a run that diverges is a no with the reason") {
  const CommandResult diverged =
      run_shell(kProgram + kModel + "--dtype fp32 --gpus 2 --zero 2 --rate 1000 --steps 8");
  CHECK(diverged.exit_code == 1);
  CHECK(contains(diverged.out, "no: updates: gradients are not finite from step"));
  const CommandResult fp16 = run_shell(kProgram + kModel + "--dtype fp16 --rate 1000 --clip 0 --steps 30");
  CHECK(fp16.exit_code == 1);
  CHECK(contains(fp16.out, "no: "));
}

TEST_CASE("a shared object that is no part of this build is not used") {
  const TemporaryFolder folder;
  const std::string program = "'" + folder.file("zeroplan") + "'";
  // Any other library will do: one that this program has open.
  const std::string maps = zeroplan::test::read_file("/proc/self/maps");
  const std::size_t name = maps.find("/libm.so");
  REQUIRE(name != std::string::npos);
  const std::size_t begin = maps.rfind(' ', name) + 1;
  const std::string library = maps.substr(begin, maps.find('\n', name) - begin);
  const CommandResult result =
      run_shell("cp '" ZEROPLAN_BINARY "' " + program + " && cp '" + library + "' '" +
                folder.file("zeroplan_cpu.so") + "' && " + program + " validate " + kModel);
  CHECK(result.exit_code == 3);
  CHECK(contains(result.out, "zeroplan_cpu.so is no part of this zeroplan"));
}

// One rank draws the masks that several have between them, so its losses are theirs.
TEST_CASE("a run with dropout is compared with one rank, and goes on with its masks") {
  const std::string any_rate =
      "--dtype fp32 --dropout --attention materialized --gpus 4 --tp 2 --zero 2 --rate 1e-2 ";
  const std::string plan = any_rate + "--dropout-rate 0.2 ";
  const json whole = record_of(plan + "--against-one-rank 3 --steps 5");
  CHECK(whole["outcome"] == "agrees");
  CHECK(losses_of(whole) != losses_of(record_of(any_rate + "--dropout-rate 0 --steps 5")));
  const TemporaryFolder folder;
  const std::string file = folder.file("state");
  json parts = losses_of(record_of(fmt::format("{}--steps 2 --save '{}'", plan, file)));
  for (const json& loss :
       losses_of(record_of(fmt::format("{}--warm-up 0 --steps 3 --resume '{}'", plan, file))))
    parts.push_back(loss);
  CHECK(parts == losses_of(whole));
}

TEST_CASE("bad options are named, all in one pass, and nothing is written") {
  const TemporaryFolder folder;
  const CommandResult result =
      run_shell(kProgram + kModel + "--steps 0 --rate fast --threads -1 --save '" +
                folder.file("absent/state") + "' --out '" + folder.file("run") + "'");
  CHECK(result.exit_code == 2);
  CHECK(result.out.empty());
  for (const char* option : {"--steps: ", "--rate: ", "--threads: ", "--save: "})
    CHECK(contains(result.err, option));
  CHECK(run_shell("test -e '" + folder.file("run") + "'").exit_code == 1);
  const CommandResult unknown = run_shell(kProgram + kModel + "--step 3");
  CHECK(unknown.exit_code == 2);
  CHECK(contains(unknown.err, "nearest: --steps"));
  for (const char* rate : {"1", "-0.1", "0.9999", "often"}) {
    const CommandResult dropped = run_shell(kProgram + kModel + "--dropout --dropout-rate=" + rate);
    CAPTURE(rate);
    CHECK(dropped.exit_code == 2);
    CHECK(contains(dropped.err, "--dropout-rate: "));
  }
  const CommandResult unused = run_shell(kProgram + kModel + "--dropout-rate 0.1");
  CHECK(unused.exit_code == 2);
  CHECK(contains(unused.err, "--dropout-rate: is not used here; it is of --dropout"));
}

TEST_CASE("ranks started as processes with torchrun's variables give one answer") {
  const std::string common = "WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29631 ";
  const std::string run = kProgram + kModel + "--zero 2 --dtype fp32 -o json";
  const CommandResult result =
      run_shell(common + "RANK=1 " + run + " & " + common + "RANK=0 " + run + "; code=$?; wait; exit $code");
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  const json record = json::parse(result.out);  // of rank 0 alone, or this is no JSON
  CHECK(record["measured"]["ranks"] == 2);
  CHECK(losses_of(record) == losses_of(record_of("--gpus 2 --zero 2 --dtype fp32")));
  const CommandResult wrong = run_shell(common + "RANK=0 " + kProgram + kModel + "--gpus 3");
  CHECK(wrong.exit_code == 2);
  CHECK(contains(wrong.err, "--gpus: the plan has 3 ranks"));
}

// findings/executor.md, section 1.2, number 3.
TEST_CASE("a data file of any size leaves the verdict as it is, and what is no file is refused at once") {
  const TemporaryFolder folder;
  const std::string small = folder.file("small");
  const std::string large = folder.file("large.bin");
  run_shell("head -c 8000000 /dev/urandom > '" + small + "'; truncate -s 10G '" + large + "'");
  const std::string plan = "--dtype fp32 --gpus 2 --zero 2 --steps 30 ";
  for (const std::string& file : {small, large}) {
    const json record = record_of(fmt::format("{}--data '{}'", plan, file));
    CHECK(record["outcome"] == "agrees");
  }
  const CommandResult device = run_shell("timeout 5 " + kProgram + kModel + "--data /dev/zero");
  CHECK(device.exit_code == 2);
  CHECK(contains(device.err, "is no regular file"));
}

TEST_CASE("the rate rises and falls, and the loss scale begins and doubles as it is told") {
  const auto column = [](const json& record, const char* key) {
    json values = json::array();
    for (const json& step : record["measured"]["steps"]) values.push_back(step[key]);
    return values;
  };
  const json record = record_of(
      "--dtype fp16 --warm-up 0 --steps 6 --rate 4e-3 --rate-warm-up 2 --rate-decay linear --rate-min 1e-3 "
      "--loss-scale 256 --loss-scale-window 2 --betas 0.9,0.95 --epsilon 1e-6 --decay all");
  const std::vector<double> rates{2e-3, 4e-3, 4e-3, 3.25e-3, 2.5e-3, 1.75e-3};  // PyTorch: *.schedule.txt
  const json seen = column(record, "learning_rate");
  for (std::size_t i = 0; i < rates.size(); ++i) CHECK(seen[i].get<double>() == doctest::Approx(rates[i]));
  CHECK(column(record, "loss_scale") == json{256, 256, 512, 512, 1024, 1024});

  const CommandResult wrong = run_shell(
      kProgram + kModel + "--dtype bf16 --optimizer sgd --loss-scale 2 --betas 0.9,0.99 --epsilon 1e-6");
  CHECK(wrong.exit_code == 2);
  for (const char* option : {"--loss-scale: ", "--betas: ", "--epsilon: "})
    CHECK(contains(wrong.err, option));
  const CommandResult more =
      run_shell(kProgram + kModel + "--shuffle=off --data-type uint8 --rate-min 1 --betas 0.9 --decay norms");
  CHECK(more.exit_code == 2);
  for (const char* option : {"--shuffle: ", "--data-type: ", "--rate-min: ", "--betas: ", "--decay: "}) {
    CHECK(contains(more.err, option));
  }
}
