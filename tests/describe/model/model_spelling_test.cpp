#include <doctest/doctest.h>

#include "planner/describe/model/model.hpp"

using namespace zeroplan;
using namespace zeroplan::describe;

namespace {

std::string errors(std::string_view text) {
  try {
    read_model_spelling(text);
    return "";
  } catch (const ConfigurationError& error) {
    std::string all;
    for (const Problem& problem : error.problems()) all += problem.key + ": " + problem.message + "\n";
    return all;
  }
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a shape is a GPT-2 block unless it says otherwise") {
  const Model model = read_model_spelling("layers=48,hidden=1600,heads=25,vocab=50257");
  CHECK(model.is_shape());
  CHECK(model.ffn == 6400);
  CHECK(model.kv_heads == 25);
  CHECK(model.head_dim == 64);
  CHECK(model.tied_embeddings);
  CHECK(model.position == Position::learned);
  CHECK(model.position_rows == 0);
  // GPT-2 XL: 1,557,611,200 parameters with its 1024 positions (tests/reference/model_configs.csv).
  CHECK(count_parameters(model, 1024) == 1557611200);
}

TEST_CASE("gated=true is a Llama block") {
  const Model model =
      read_model_spelling("layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,vocabulary=128256,gated=true");
  CHECK(count_parameters(model) == 8030261248);  // Llama 3 8B
  CHECK(model.norm == Norm::rms_norm);
  CHECK(model.activation == Activation::silu);
  CHECK(model.position == Position::rotary);
  CHECK_FALSE(model.tied_embeddings);
}

TEST_CASE("head_dim and tied win over what is derived") {
  const Model model = read_model_spelling("layers=2,hidden=60,heads=8,head_dim=16,vocab=100,tied=false");
  CHECK(model.head_dim == 16);
  // 4 h H d attention weights, 3 H d + h biases, the MLP, two norms; both tables; the final norm.
  const Elements block = 4 * 60 * 128 + 3 * 128 + 60 + 8 * 60 * 60 + 4 * 60 + 60 + 4 * 60;
  CHECK(count_parameters(model) == 2 * block + 2 * 100 * 60 + 2 * 60);
}

TEST_CASE("a count of parameters") {
  CHECK(read_model_spelling("params=7.5B").only_parameters == 7500000000);
  const Model model = read_model_spelling("params=2851M, largest_layer=32M");
  CHECK(model.only_parameters == 2851000000);
  CHECK(model.only_largest_layer == 32000000);
  CHECK_FALSE(model.is_shape());
  CHECK(contains(errors("params=1M,largest_layer=2M"), "at most params"));
  CHECK(contains(errors("params=1M,layers=2"), "layers: not together with params"));
  CHECK(contains(errors("params=-1"), "params"));
  CHECK(contains(errors("params="), "params"));
  CHECK(contains(errors("params=2000T"), "params"));
}

TEST_CASE("every slip is named, with the nearest key") {
  const std::string missing = errors("layers=2");
  for (const char* key : {"hidden: missing", "heads: missing", "vocab: missing"})
    CHECK(contains(missing, key));
  CHECK(contains(errors("layers=2,hiden=8,heads=2,vocab=9"), "nearest: hidden"));
  CHECK(contains(errors("layers=2,hidden=8,heads=2,vocab=9,layers=3"), "layers: given twice"));
  CHECK(contains(errors("vocab=9,layers=2,hidden=8,heads=2,vocabulary=9"), "given twice"));
  CHECK(contains(errors("layers=2,hidden=8,heads=2,vocab=9,"), "expected key=value"));
  CHECK(contains(errors("layers=012,hidden=8,heads=2,vocab=9"), "layers"));
  CHECK(contains(errors("layers=2,hidden=9,heads=2,vocab=9"), "divisor of hidden 9"));
  CHECK(contains(errors("layers=2,hidden=8,heads=2,vocab=9,gated=true"), "ffn: missing"));
  CHECK(contains(errors("layers=2,hidden=8,heads=2,vocab=9,gated=maybe"), "gated"));
  CHECK(contains(errors("layers=2,hidden=8,heads=2,vocab=9,largest_layer=3"), "largest_layer"));
  CHECK(contains(errors("layers=100000,hidden=1048576,heads=2,vocab=9"), "at most 1e15"));
  CHECK(contains(errors("hidden=1e400,layers=nan,heads=inf,vocab=0x10"), "hidden"));
}
