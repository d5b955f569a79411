#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "planner/describe/model/model.hpp"
#include "tests/support/command.hpp"

using namespace zeroplan;
using namespace zeroplan::describe;

namespace {

std::string write(const test::TemporaryFolder& folder, const std::string& name, const std::string& text) {
  const std::filesystem::path path = folder.file(name);
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
  return path.string();
}

std::string errors(const std::string& argument) {
  try {
    resolve_model(argument);
    return "";
  } catch (const ConfigurationError& error) {
    return error.problems().front().text();
  }
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

constexpr const char* kConfig =
    R"({"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "vocab_size": 50257})";

}  // namespace

TEST_CASE("a preset is found by its name and by its Hugging Face id, in any case") {
  CHECK(resolve_model("gpt2-xl").name == "gpt2-xl");
  CHECK(resolve_model("GPT2-XL").name == "gpt2-xl");
  CHECK(resolve_model("meta-llama/Llama-3.1-8B").name == "llama3.1-8b");
  CHECK(resolve_model("meta-llama/llama-3.1-8b").name == "llama3.1-8b");
}

TEST_CASE("the names of the presets are sorted") {
  const auto names = preset_model_names();
  CHECK(names.size() == 100);
  CHECK(std::is_sorted(names.begin(), names.end()));
}

TEST_CASE("a name that is not there is answered with the nearest") {
  CHECK(contains(errors("gpt2-xll"), "nearest: gpt2-xl"));
  CHECK(contains(errors("lama2-7b"), "nearest: llama2-7b"));
  CHECK(contains(errors("no such thing at all"), "zeroplan models list"));
  CHECK(contains(errors(""), "no model"));
  CHECK(contains(errors("./nowhere/config.json"), "no such file or folder"));
  CHECK_FALSE(errors(std::string(5000, 'a')).empty());
  CHECK_FALSE(errors(std::string("gpt2\0x", 6)).empty());
}

TEST_CASE("an argument with = is a spelling") {
  CHECK(resolve_model("params=7.5B").only_parameters == 7500000000);
  CHECK(resolve_model("layers=1,hidden=8,heads=2,vocab=16").layers == 1);
}

TEST_CASE("a folder is read by its config.json, a file by its extension") {
  const test::TemporaryFolder folder;
  write(folder, "my-model/config.json", kConfig);
  const Model from_folder = resolve_model(folder.path() + "/my-model");
  CHECK(from_folder.name == "my-model");
  CHECK(count_parameters(from_folder) == 124439808);
  CHECK(resolve_model(folder.path() + "/my-model/").layers == 12);
  CHECK(resolve_model(write(folder, "other.json", kConfig)).name == "other");
  CHECK(resolve_model(ZEROPLAN_SOURCE "/models/gpt2.yaml").name == "gpt2");
  CHECK(contains(errors(folder.path()), "config.json"));
  CHECK(contains(errors(write(folder, "model.txt", kConfig)), "expected a .json file"));
  CHECK(contains(errors(write(folder, "cut.json", R"({"model_type": "gp)")), "cut.json"));
  CHECK(resolve_model(write(folder, "a=b/config.json", kConfig)).layers == 12);
}
