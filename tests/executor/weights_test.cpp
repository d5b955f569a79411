#include "executor/weights.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "executor/device/cpu/cpu_device.hpp"
#include "executor/random.hpp"
#include "executor/storage/save_tensors.hpp"
#include "planner/error.hpp"
#include "planner/predict/memory.hpp"
#include "planner/program/compile.hpp"
#include "tests/executor/training_support.hpp"
#include "tests/support/command.hpp"

// Weights under Hugging Face names. What PyTorch makes of them: tests/tools/check_weights.py.

using namespace zeroplan;
using namespace zeroplan::executor;
using namespace zeroplan::executor::test;
using zeroplan::test::read_file;
using zeroplan::test::TemporaryFolder;

namespace {

describe::Plan planned(int stage, std::int64_t data_parallel, std::int64_t tensor_parallel) {
  describe::Plan plan = fp32_plan();
  plan.zero_stage = stage;
  plan.data_parallel = data_parallel;
  plan.tensor_parallel = tensor_parallel;
  return plan;
}

program::WeightNames names_of(const describe::Model& model) {
  return program::huggingface_names(model, fp32_plan().sequence).value();
}

// Starts from `value` and exports.
void export_from(const describe::Model& model, const describe::Plan& plan,
                 const std::function<ParameterValue()>& value, const std::string& path) {
  run_ranks(plan.devices(), ThreadOptions{}, [&](Communicator& world) {
    program::StepProgram program =
        program::compile(model, plan, position_of(world.rank(), plan.tensor_parallel));
    const predict::MemoryProfile memory = predict::read_memory(program);
    Rank rank(std::move(program), {memory.peak, memory.host_peak}, make_cpu_device({}), world);
    rank.initialize(value());
    export_weights(path, names_of(model), rank, world);
  });
}

// An element's value says which it is.
float numbered(const ParameterElement& element) {
  return static_cast<float>(element.key % 1000) + static_cast<float>(element.layer * 1000) +
         static_cast<float>(element.output) / 64 + static_cast<float>(element.input) / 4096;
}

std::string refusal(const std::string& path, const describe::Model& model) {
  try {
    const WeightFiles files(path, names_of(model));
  } catch (const ConfigurationError& error) {
    std::string text;
    for (const Problem& problem : error.problems()) text += problem.text() + "\n";
    return text;
  }
  return "nothing was refused";
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

void write_tensors(const std::string& path, const std::vector<TensorEntry>& tensors) {
  run_ranks(1, {}, [&](Communicator& world) {
    save_tensors({path, ""}, tensors, {}, world, [&](TensorSink& sink) {
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        sink.write(i, 0, std::vector<float>(static_cast<std::size_t>(tensors[i].elements()), 1.0F));
      }
    });
  });
}

}  // namespace

// The names and shapes of `GPT2LMHeadModel(config).state_dict()` and `LlamaForCausalLM(config).state_dict()` of
// transformers, written down from their definitions.
TEST_CASE("the names and shapes are those of transformers") {
  const auto listed = [](const describe::Model& model) {
    std::set<std::string> result;
    for (const program::NamedWeight& weight : names_of(model).weights) {
      result.insert(weight.name + " " + shape_text(weight.shape));
    }
    return result;
  };
  const auto gpt2 = describe::read_model_spelling("layers=1,hidden=20,heads=4,vocab=31,ffn=36");
  const std::string sequence = std::to_string(fp32_plan().sequence);
  CHECK(listed(gpt2) ==
        std::set<std::string>{
            "transformer.wte.weight [31, 20]", "transformer.wpe.weight [" + sequence + ", 20]",
            "transformer.h.0.ln_1.weight [20]", "transformer.h.0.ln_1.bias [20]",
            "transformer.h.0.attn.c_attn.weight [20, 60]", "transformer.h.0.attn.c_attn.bias [60]",
            "transformer.h.0.attn.c_proj.weight [20, 20]", "transformer.h.0.attn.c_proj.bias [20]",
            "transformer.h.0.ln_2.weight [20]", "transformer.h.0.ln_2.bias [20]",
            "transformer.h.0.mlp.c_fc.weight [20, 36]", "transformer.h.0.mlp.c_fc.bias [36]",
            "transformer.h.0.mlp.c_proj.weight [36, 20]", "transformer.h.0.mlp.c_proj.bias [20]",
            "transformer.ln_f.weight [20]", "transformer.ln_f.bias [20]"});
  const auto llama =
      describe::read_model_spelling("layers=1,hidden=20,heads=4,kv_heads=2,vocab=29,ffn=28,gated=true");
  CHECK(listed(llama) == std::set<std::string>{"model.embed_tokens.weight [29, 20]",
                                               "model.layers.0.input_layernorm.weight [20]",
                                               "model.layers.0.self_attn.q_proj.weight [20, 20]",
                                               "model.layers.0.self_attn.k_proj.weight [10, 20]",
                                               "model.layers.0.self_attn.v_proj.weight [10, 20]",
                                               "model.layers.0.self_attn.o_proj.weight [20, 20]",
                                               "model.layers.0.post_attention_layernorm.weight [20]",
                                               "model.layers.0.mlp.gate_proj.weight [28, 20]",
                                               "model.layers.0.mlp.up_proj.weight [28, 20]",
                                               "model.layers.0.mlp.down_proj.weight [20, 28]",
                                               "model.norm.weight [20]", "lm_head.weight [29, 20]"});
  describe::Model biased = llama;
  biased.biases = describe::Bias::qkv;  // Qwen2
  CHECK(listed(biased).contains("model.layers.0.self_attn.k_proj.bias [10]"));
  for (const char* known : {"gpt2", "gpt2-xl", "llama2-7b", "llama3-8b", "mistral-7b-v0.3", "qwen2.5-7b"}) {
    CAPTURE(known);
    CHECK(program::huggingface_names(describe::resolve_model(known), 1024).has_value());
  }
  for (const char* other :
       {"opt-125m", "pythia-1b", "mixtral-8x7b", "gemma2-2b", "qwen3-0.6b", "llama4-scout", "params=1B"}) {
    CAPTURE(other);
    CHECK_FALSE(program::huggingface_names(describe::resolve_model(other), 1024).has_value());
  }
}

TEST_CASE(
    "exported at any degrees and stage, the weights are the same file, and read again they are the same") {
  const TemporaryFolder folder;
  for (const describe::Model& model : {tiny_gpt(), tiny_llama()}) {
    const std::string first = folder.file("first.safetensors");
    const std::string again = folder.file("again.safetensors");
    export_from(
        model, planned(0, 1, 1), [] { return numbered; }, first);
    const std::string expected = read_file(first);
    const WeightFiles files(first, names_of(model));
    struct Layout {
      int stage, data, tensor;
    };
    for (const Layout& layout : {Layout{0, 1, 1}, {0, 3, 2}, {1, 2, 4}, {2, 5, 2}, {3, 7, 1}, {3, 3, 4}}) {
      CAPTURE(layout.stage);
      CAPTURE(layout.data);
      CAPTURE(layout.tensor);
      export_from(
          model, planned(layout.stage, layout.data, layout.tensor), [] { return numbered; }, again);
      CHECK(read_file(again) == expected);
      export_from(
          model, planned(layout.stage, layout.data, layout.tensor), [&] { return files.values(); }, again);
      CHECK(read_file(again) == expected);
    }
  }
}

TEST_CASE("Conv1D is stored transposed, with query, key and value side by side") {
  const TemporaryFolder folder;
  const std::string path = folder.file("gpt.safetensors");
  const describe::Model model = tiny_gpt();
  export_from(
      model, planned(2, 2, 2), [] { return numbered; }, path);
  const MappedTensorFile file(path);
  const auto at = [&](const std::string& name, Elements row, Elements column) {
    const TensorEntry* tensor = file.find(name);
    REQUIRE(tensor != nullptr);
    return load_float(file.data(*tensor) + 4 * (row * tensor->shape[1] + column), program::DataType::fp32);
  };
  const auto ours = [](std::string_view name, std::int64_t layer, Elements output, Elements input) {
    return numbered({.name = name, .key = hash_of(name), .layer = layer, .output = output, .input = input});
  };
  CHECK(at("transformer.h.2.attn.c_attn.weight", 7, 5) == ours("attention.query.weight", 2, 5, 7));
  CHECK(at("transformer.h.2.attn.c_attn.weight", 7, 25) == ours("attention.key.weight", 2, 5, 7));
  CHECK(at("transformer.h.1.attn.c_attn.weight", 19, 59) == ours("attention.value.weight", 1, 19, 19));
  CHECK(at("transformer.h.0.mlp.c_proj.weight", 35, 3) == ours("mlp.down.weight", 0, 3, 35));
  CHECK(at("transformer.wte.weight", 30, 19) == ours("embedding.token", 0, 30, 19));
}

TEST_CASE("files that do not fit the model are refused with every tensor that is wrong, in one list") {
  const TemporaryFolder folder;
  const describe::Model model = tiny_gpt();
  std::vector<TensorEntry> tensors;
  std::set<std::string> known;
  for (const program::NamedWeight& weight : names_of(model).weights) {
    if (known.insert(weight.name).second) tensors.push_back({.name = weight.name, .shape = weight.shape});
  }
  const std::string path = folder.file("model.safetensors");
  write_tensors(path, tensors);
  CHECK(refusal(path, model) == "nothing was refused");
  CHECK(refusal(folder.path(), model) == "nothing was refused");

  std::vector<TensorEntry> wrong = tensors;
  std::erase_if(wrong, [](const TensorEntry& tensor) { return tensor.name == "transformer.ln_f.bias"; });
  for (TensorEntry& tensor : wrong) {
    if (tensor.name == "transformer.wte.weight") tensor.shape = {32, 20};
    if (tensor.name == "transformer.h.0.ln_1.bias") tensor.name = "transformer.h.0.ln_1.bais";
  }
  wrong.push_back({.name = "transformer.h.0.attn.bias", .shape = {1, 1, 8, 8}});  // a mask of older versions
  write_tensors(path, wrong);
  const std::string text = refusal(path, model);
  CAPTURE(text);
  CHECK(contains(text, "transformer.ln_f.bias: is missing, expected [20]"));
  CHECK(contains(text,
                 "transformer.h.0.ln_1.bias: is missing, expected [20]; nearest: transformer.h.0.ln_1.bais"));
  CHECK(contains(text, "transformer.wte.weight: has the shape [32, 20], expected [31, 20]"));
  CHECK(contains(text, "transformer.h.0.ln_1.bais: is in the file and not in the model"));
  CHECK_FALSE(contains(text, "attn.bias"));

  // A head that the model ties: the table again is fine, another one is not.
  std::vector<TensorEntry> tied = tensors;
  tied.push_back({.name = "lm_head.weight", .shape = {31, 20}});
  write_tensors(path, tied);
  CHECK(refusal(path, model) == "nothing was refused");
  tied.back().shape = {20, 31};
  write_tensors(path, tied);
  CHECK(contains(refusal(path, model), "lm_head.weight: is another than transformer.wte.weight"));

  CHECK(contains(refusal(folder.file("absent"), model), "there is no such file"));
  const TemporaryFolder empty;
  CHECK(contains(refusal(empty.path(), model), "has neither model.safetensors nor"));
  std::ofstream(empty.file("model.safetensors.index.json")) << R"({"weight_map": {"a": "../b.safetensors"}})";
  CHECK(contains(refusal(empty.path(), model), "weight_map.a: expected a file beside the index"));
}

// Headers that lie: none may be believed.
TEST_CASE("damaged headers of safetensors are refused with what is wrong") {
  const TemporaryFolder folder;
  const std::string path = folder.file("file");
  const auto message = [&](const std::string& header, std::size_t data) {
    std::string text(8, '\0');
    text[0] = static_cast<char>(header.size() & 0xff);
    text[1] = static_cast<char>(header.size() >> 8);
    std::ofstream(path, std::ios::binary) << text << header << std::string(data, 'x');
    try {
      const MappedTensorFile file(path);
    } catch (const ConfigurationError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was refused");
  };
  const auto tensor = [](const char* shape, const char* offsets) {
    return fmt::format(R"("a":{{"dtype":"F32","shape":{},"data_offsets":{}}})", shape, offsets);
  };
  CHECK(message("{" + tensor("[2]", "[0,8]") + "}", 8) == "nothing was refused");
  CHECK(message("{}", 0) == "nothing was refused");
  CHECK(contains(message("{" + tensor("[2]", "[0,8]"), 8), "no JSON object"));
  CHECK(contains(message("{" + tensor("[3]", "[0,8]") + "}", 8), "has 8 bytes, expected 12 for F32 [3]"));
  CHECK(contains(message("{" + tensor("[2]", "[0,8]") + "}", 7), "cut short"));
  CHECK(contains(message("{" + tensor("[2]", "[0,8]") + "}", 9), "has 9 bytes of data, expected 8"));
  CHECK(contains(message("{" + tensor("[2]", "[4,12]") + "}", 12), "does not begin where"));
  CHECK(contains(message("{" + tensor("[2]", "[8,0]") + "}", 8), "bytes 8 to 0"));
  CHECK(contains(message("{" + tensor("[4294967296,4294967296]", "[0,0]") + "}", 0), "larger than the file"));
  CHECK(contains(message("{" + tensor("[-1]", "[0,4]") + "}", 4), "larger than the file"));
  CHECK(contains(message("{" + tensor("\"2\"", "[0,8]") + "}", 8), "expected dtype, shape and data_offsets"));
  CHECK(contains(message(R"({"a":3})", 0), "expected dtype, shape and data_offsets"));
  CHECK(contains(message(R"({"__metadata__":{"a":1}})", 0), "__metadata__.a: expected text"));
}
