#include "executor/checkpoint.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "executor/batches.hpp"
#include "executor/device/cpu/cpu_device.hpp"
#include "executor/error.hpp"
#include "executor/random.hpp"
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
      run_position = load_checkpoint(part.resume, kIdentity, rank, world);
      shape.first_sequence = run_position.data.resumed_in("of the test");
    }
    StepSettings settings;
    settings.learning_rate = 1e-2F;
    settings.clip_norm = 1;
    settings.weight_decay = 0.1F;
    settings.dynamic_loss_scale = loss_scale != 1;
    settings.scale_window = 3;
    settings.dropout_seed = 11;
    const auto batches = seeded_batches(shape, model.vocabulary, 9);
    for (std::int64_t step = 0; step < part.steps; ++step) {
      const float loss = rank.step(settings, *batches).loss;
      if (world.rank() == 0) losses.push_back(loss);
    }
    run_position.steps += part.steps;
    run_position.data.sequences += part.steps * shape.global_batch();
    if (!part.save.empty()) save_checkpoint({part.save, ""}, kIdentity, run_position, rank, world);
  });
  return losses;
}

describe::Plan planned(int stage, std::int64_t data_parallel, std::int64_t tensor_parallel,
                       std::int64_t accumulation = 1) {
  describe::Plan plan = fp32_plan();
  plan.zero_stage = stage;
  plan.data_parallel = data_parallel;
  plan.tensor_parallel = tensor_parallel;
  plan.gradient_accumulation = accumulation;
  return plan;
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
        plan.dropout = plans % 2 == 0;  // the masks of a step do not depend on where a run began
        if (plan.dropout) plan.attention = describe::AttentionKernel::materialized;
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
  CHECK(zeroplan::test::read_file(folder.file("twelve")) == zeroplan::test::read_file(folder.file("five")));
}

// The state does not depend on how it was divided: a file that was saved at one layout, loaded at another and
// saved again without a step is the same file, byte by byte.
TEST_CASE("saved at any degrees and stage, the same state is the same file") {
  const zeroplan::test::TemporaryFolder folder;
  for (const describe::Model& model : {tiny_gpt(), tiny_llama()}) {
    const std::string first = folder.file("first");
    train_part(model, planned(1, 2, 2), {"", first, 2});
    const std::string expected = zeroplan::test::read_file(first);
    struct Layout {
      int stage, data, tensor;
    };
    for (const Layout& layout : {Layout{0, 1, 1}, {0, 3, 4}, {3, 2, 4}, {2, 5, 2}, {3, 7, 1}, {1, 1, 4}}) {
      CAPTURE(layout.stage);
      CAPTURE(layout.data);
      CAPTURE(layout.tensor);
      const std::string again = folder.file("again");
      train_part(model, planned(layout.stage, layout.data, layout.tensor), {first, again, 0});
      CHECK(zeroplan::test::read_file(again) == expected);
    }
  }
}

// Tensor-parallel ranks sum in another order than one rank, so losses after a change agree to rounding only.
TEST_CASE("a run goes on at another tensor-parallel degree") {
  const zeroplan::test::TemporaryFolder folder;
  for (const describe::Model& model : {tiny_gpt(), tiny_llama()}) {
    const std::vector<float> reference = train_part(model, planned(0, 1, 1, 2), {"", "", 6});
    const std::string file = folder.file("state");
    for (const std::pair<int, int>& degrees : {std::pair{4, 1}, {1, 2}, {2, 4}}) {
      const int from = degrees.first;
      const int to = degrees.second;
      CAPTURE(from);
      CAPTURE(to);
      std::vector<float> losses = train_part(model, planned(2, 2, from), {"", file, 3});
      for (const float loss : train_part(model, planned(3, 2, to), {file, "", 3})) losses.push_back(loss);
      REQUIRE(losses.size() == reference.size());
      for (std::size_t i = 0; i < losses.size(); ++i) {
        CHECK(losses[i] == doctest::Approx(reference[i]).epsilon(1e-5));
      }
    }
  }
}

namespace {

// What a rank says that is to go on from a file.
std::string refusal(const describe::Model& model, const describe::Plan& plan, const std::string& path) {
  try {
    train_part(model, plan, {path, "", 1});
  } catch (const ConfigurationError& error) {
    return error.what();
  }
  return "nothing was refused";
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// The CRC-32 of ISO 3309 bit by bit, apart from the library that writes it.
std::uint32_t plain_crc(std::string_view text) {
  std::uint32_t crc = 0xffffffffU;
  for (const char letter : text) {
    crc ^= static_cast<unsigned char>(letter);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1U) != 0 ? 0xedb88320U : 0U);
  }
  return ~crc;
}

// A forgery: `from` in the header becomes `to`, with the length and the check that belong to it.
std::string forged(const std::string& text, const std::string& from, const std::string& to) {
  std::uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof length);
  std::string header = text.substr(8, length);
  const std::size_t at = header.find(from);
  REQUIRE(at != std::string::npos);
  header.replace(at, from.size(), to);
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t new_length = header.size();
  std::string start(8, '\0');
  std::memcpy(start.data(), &new_length, sizeof new_length);
  header = start + header;
  const std::string key = "\"header_crc32\":\"";
  const std::size_t check = header.find(key) + key.size();
  header.replace(check, 8, "00000000");
  header.replace(check, 8, fmt::format("{:08x}", plain_crc(header)));
  return header + text.substr(8 + length);
}

}  // namespace

TEST_CASE("each flipped bit of a checkpoint is found") {
  const zeroplan::test::TemporaryFolder folder;
  const std::string file = folder.file("state");
  const describe::Model model = tiny_gpt();
  const describe::Plan plan = planned(2, 2, 1);
  train_part(model, plan, {"", file, 1});
  const std::string whole = zeroplan::test::read_file(file);
  std::uint64_t state = 11;
  for (int i = 0; i < 60; ++i) {
    state = mix(state);
    // Half of them in the header, which is a small part of the file.
    const std::size_t at = state % (i % 2 == 0 ? whole.size() : 4000);
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 1 << (state >> 40 & 7));
    write(file, flipped);
    CAPTURE(at);
    CHECK(refusal(model, plan, file) != "nothing was refused");
  }
  write(file, whole);
  CHECK(refusal(model, plan, file) == "nothing was refused");
}

TEST_CASE("a checkpoint that cannot be used is refused at once with what is wrong") {
  const zeroplan::test::TemporaryFolder folder;
  const std::string file = folder.file("state");
  const std::string bad = folder.file("bad");
  const describe::Model model = tiny_gpt();
  const describe::Plan plan = fp32_plan();
  train_part(model, plan, {"", file, 1});
  const std::string whole = zeroplan::test::read_file(file);
  const auto message = [&](const std::string& text) {
    write(bad, text);
    return refusal(model, plan, bad);
  };

  describe::Plan other = plan;
  other.optimizer = describe::find_optimizer("sgd");
  CHECK(contains(refusal(model, other, file), "embedding.token/momentum: is in the file and not"));
  CHECK(
      contains(refusal(tiny_llama(), plan, file), "layers.0.mlp.gate.weight: is missing, expected [28, 20]"));
  CHECK(contains(refusal(model, plan, folder.file("absent")), "there is no such file"));
  CHECK(contains(refusal(model, plan, folder.path()), "is no ordinary file"));

  CHECK(contains(message(whole.substr(0, whole.size() - 1)), "cut short or damaged"));
  CHECK(contains(message(whole.substr(0, 1000)), "ends inside its header"));
  CHECK(contains(message(""), "is no safetensors file"));
  CHECK(contains(message("some text that is long enough to be a header"), "is no safetensors file"));
  CHECK(contains(message(whole + "more"), "damaged"));
  CHECK(contains(message("PK\x03\x04 pytorch_model.bin"), "is a pickle of PyTorch"));
  CHECK(contains(message("zeroplan checkpoint 1\nmodel tiny\n"), "of format 1"));
  CHECK(contains(message(std::string("\x02\0\0\0\0\0\0\0{}", 10)), "no checkpoint of zeroplan"));
  CHECK(contains(message(forged(whole, "\"zeroplan_checkpoint\":\"2\"", "\"zeroplan_checkpoint\":\"3\"")),
                 "found format 3, this version of zeroplan reads format 2 only"));

  // What no run has written, with checks that are right.
  CHECK(contains(message(forged(whole, "\"steps\":\"1\"", "\"steps\":\"x\"")), "steps: found \"x\""));
  CHECK(contains(message(forged(whole, "\"updates\":\"1\"", "\"updates\":\"2\"")), "updates: found \"2\""));
  for (const char* scale : {"nan", "inf", "-1", "0"}) {
    const std::string text =
        forged(whole, "\"loss_scale\":\"1\"", fmt::format("\"loss_scale\":\"{}\"", scale));
    CHECK(contains(message(text), fmt::format("loss_scale: found \"{}\"", scale)));
  }
  CHECK(contains(message(forged(whole, "\"steps\":\"1\"", "\"steps\":\"9223372036854775807\"")),
                 "steps: found"));
  CHECK(message(forged(whole, "\"steps\":\"1\"", "\"steps\":\"7\"")) == "nothing was refused");
}

TEST_CASE("values that are not finite are neither saved nor loaded") {
  const zeroplan::test::TemporaryFolder folder;
  const std::string file = folder.file("state");
  const describe::Model model = tiny_gpt();
  const describe::Plan plan = planned(0, 2, 2);
  train_part(model, plan, {"", file, 1});
  const std::string whole = zeroplan::test::read_file(file);

  run_ranks(plan.devices(), ThreadOptions{}, [&](Communicator& world) {
    program::StepProgram program = program::compile(model, plan, position_of(world.rank(), 2));
    const predict::MemoryProfile memory = predict::read_memory(program);
    Rank rank(std::move(program), {memory.peak, memory.host_peak}, make_cpu_device({}), world);
    // On all ranks that hold the element.
    rank.initialize([](const ParameterElement& element) {
      return element.name == "final_norm.bias" && element.output == 3 ? std::nanf("") : 1.0F;
    });
    try {
      save_checkpoint({file, ""}, kIdentity, {1, {}}, rank, world);
      FAIL_CHECK("a state that is not finite was saved");
    } catch (const DeviceError& error) {
      CHECK(contains(error.what(), "final_norm.bias holds values that are not finite; what was there stays"));
    }
  });
  CHECK(zeroplan::test::read_file(file) == whole);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);

  // Someone else's file, with checks that are right.
  const MappedTensorFile mapped(file);
  const TensorEntry* bias = mapped.find("final_norm.bias");
  REQUIRE(bias != nullptr);
  const auto at = static_cast<std::size_t>(mapped.data(*bias) - mapped.data(mapped.tensors()[0])) +
                  mapped.header().size();
  std::string text = whole;
  const std::uint32_t nan_bits = 0x7fc00000U;
  std::memcpy(text.data() + at, &nan_bits, sizeof nan_bits);
  const auto index = static_cast<std::size_t>(bias - mapped.tensors().data());
  const std::string& checks = mapped.metadata().at("crc32");
  std::string new_checks = checks;
  new_checks.replace(8 * index, 8,
                     fmt::format("{:08x}", plain_crc(std::string_view(text).substr(
                                               at, static_cast<std::size_t>(bias->bytes())))));
  write(folder.file("nan"), forged(text, checks, new_checks));
  CHECK(contains(refusal(model, plan, folder.file("nan")),
                 "final_norm.bias: holds values that are not finite"));
}
