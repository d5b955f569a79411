#include "executor/checkpoint.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "executor/batches.hpp"
#include "executor/device/cpu/cpu_device.hpp"
#include "executor/error.hpp"
#include "planner/error.hpp"
#include "planner/predict/memory.hpp"
#include "planner/program/compile.hpp"
#include "tests/executor/training_support.hpp"
#include "tests/support/command.hpp"

// Class 9 of known faults: resuming, and resuming at another data-parallel degree.

using namespace zeroplan;
using namespace zeroplan::executor;
using namespace zeroplan::executor::test;

namespace {

const TrainingIdentity kIdentity{{"model", "tiny"}, {"dtype", "any"}};

struct Part {
  std::string resume, save;
  std::int64_t steps = 0;
};

// Trains for some steps between two checkpoints; the losses.
std::vector<float> train_part(const describe::Model& model, const describe::Plan& plan, const Part& part,
                              float loss_scale = 1) {
  std::vector<float> losses;
  run_ranks(plan.devices(), ThreadOptions{}, [&](Communicator& world) {
    const program::RankPosition position = position_of(world.rank(), plan.tensor_parallel);
    program::StepProgram program = program::compile(model, plan, position);
    const predict::MemoryProfile memory = predict::read_memory(program);
    Rank rank(std::move(program), {memory.peak, memory.host_peak}, make_cpu_device({}), world);
    BatchShape shape{plan.sequence, plan.micro_batch, plan.gradient_accumulation, plan.data_parallel,
                     position.data_parallel};
    RunPosition run_position{0, {0, "of the test"}};
    if (part.resume.empty()) {
      rank.initialize(normal_initialization(3, model.layers), loss_scale);
    } else {
      run_position = load_checkpoint(part.resume, kIdentity, rank);
      shape.first_sequence = run_position.data.resumed_in("of the test");
    }
    StepSettings settings;
    settings.learning_rate = 1e-2F;
    settings.clip_norm = 1;
    settings.weight_decay = 0.1F;
    settings.dynamic_loss_scale = loss_scale != 1;
    settings.scale_window = 3;
    const auto batches = seeded_batches(shape, model.vocabulary, 9);
    for (std::int64_t step = 0; step < part.steps; ++step) {
      const float loss = rank.step(settings, *batches).loss;
      if (world.rank() == 0) losses.push_back(loss);
    }
    run_position.steps += part.steps;
    run_position.data.sequences += part.steps * shape.global_batch();
    if (!part.save.empty()) save_checkpoint(part.save, kIdentity, run_position, rank, world);
  });
  return losses;
}

std::string arrays_of(const std::string& checkpoint) {
  const std::string text = zeroplan::test::read_file(checkpoint);
  return text.substr(static_cast<std::size_t>(round_up(static_cast<std::int64_t>(text.find('\0')), 4096)));
}

}  // namespace

TEST_CASE("ten steps are five, saved, loaded, and five: the same bits") {
  const zeroplan::test::TemporaryFolder folder;
  const std::string file = folder.file("state");
  int plans = 0;
  for (const describe::Model& model : {tiny_gpt(), tiny_llama()}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const auto precision :
           {describe::Precision::fp32, describe::Precision::bf16, describe::Precision::fp16}) {
        describe::Plan plan = fp32_plan();
        plan.precision = precision;
        plan.zero_stage = stage;
        plan.data_parallel = 2;
        plan.tensor_parallel = 1 + plans++ % 2;
        if (stage > 0 && plans % 3 == 0) plan.offload = describe::Offload::optimizer;
        CAPTURE(stage);
        CAPTURE(static_cast<int>(precision));
        const float scale = precision == describe::Precision::fp16 ? 1024.0F : 1.0F;
        const std::vector<float> whole = train_part(model, plan, {"", "", 10}, scale);
        std::vector<float> parts = train_part(model, plan, {"", file, 5}, scale);
        for (const float loss : train_part(model, plan, {file, "", 5}, scale)) parts.push_back(loss);
        CHECK(same_bits(whole, parts));
      }
    }
  }
}

// Ranks add gradients in their order, and passes in theirs: only where all are one or all the other is the
// order that of the reference, and so are the bits.
TEST_CASE("a run goes on at another data-parallel degree and stage") {
  const zeroplan::test::TemporaryFolder folder;
  const describe::Model model = tiny_llama();
  struct Layout {
    std::int64_t data_parallel = 1, accumulation = 1;
    int stage = 0;
  };
  const auto planned = [&](const Layout& layout) {
    describe::Plan plan = fp32_plan();
    plan.data_parallel = layout.data_parallel;
    plan.gradient_accumulation = layout.accumulation;
    plan.zero_stage = layout.stage;
    return plan;
  };
  const std::vector<float> reference = train_part(model, planned({1, 12, 0}), {"", "", 6});
  const std::string file = folder.file("twelve");
  const std::vector<float> start = train_part(model, planned({12, 1, 2}), {"", file, 3});
  for (const Layout& after : {Layout{1, 12, 0}, Layout{12, 1, 3}, Layout{4, 3, 3}, Layout{6, 2, 1}}) {
    CAPTURE(after.data_parallel);
    std::vector<float> losses = start;
    for (const float loss : train_part(model, planned(after), {file, "", 3})) losses.push_back(loss);
    if (after.data_parallel == 1 || after.accumulation == 1) CHECK(same_bits(losses, reference));
    for (std::size_t i = 0; i < losses.size(); ++i) {
      CHECK(losses[i] == doctest::Approx(reference[i]).epsilon(1e-5));
    }
  }
}

TEST_CASE("saved by twelve ranks and by five, the same state is the same file") {
  const zeroplan::test::TemporaryFolder folder;
  const describe::Model model = tiny_gpt();
  describe::Plan plan = fp32_plan();
  plan.precision = describe::Precision::bf16;
  plan.zero_stage = 3;
  plan.data_parallel = 12;
  train_part(model, plan, {"", folder.file("twelve"), 2});
  plan.data_parallel = 5;
  train_part(model, plan, {folder.file("twelve"), folder.file("five"), 0});
  CHECK(arrays_of(folder.file("twelve")) == arrays_of(folder.file("five")));
}

TEST_CASE(
    "a checkpoint that cannot be used is refused with what is wrong, one that cannot be written leaves the "
    "old") {
  const zeroplan::test::TemporaryFolder folder;
  const std::string file = folder.file("state");
  const describe::Model model = tiny_gpt();
  describe::Plan plan = fp32_plan();
  train_part(model, plan, {"", file, 1});

  const auto message = [&](const describe::Plan& with, const std::string& path) {
    try {
      train_part(model, with, {path, "", 1});
    } catch (const ConfigurationError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was refused");
  };
  describe::Plan other = plan;
  other.tensor_parallel = 2;
  CHECK(message(other, file).find("tensor_parallel: found \"1\", expected \"2\"") != std::string::npos);
  other = plan;
  other.optimizer = describe::find_optimizer("sgd");
  CHECK(message(other, file).find("vectors") != std::string::npos);
  CHECK(message(plan, folder.file("absent")).find("--resume") != std::string::npos);

  const std::string whole = zeroplan::test::read_file(file);
  std::ofstream(folder.file("cut"), std::ios::binary) << whole.substr(0, whole.size() - 1);
  CHECK(message(plan, folder.file("cut")).find("damaged") != std::string::npos);
  std::ofstream(folder.file("text"), std::ios::binary) << "some text";
  CHECK(message(plan, folder.file("text")).find("not a checkpoint") != std::string::npos);

  // A folder in the way of the new file: the save fails, and the old file is as it was.
  std::filesystem::create_directory(file + ".partial");
  CHECK_THROWS_AS(train_part(model, plan, {"", file, 2}), DeviceError);
  CHECK(zeroplan::test::read_file(file) == whole);
}
