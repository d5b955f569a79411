#include "planner/program/approximations.hpp"

#include <fmt/format.h>

namespace zeroplan::program {

namespace {

using describe::Model;

class List {
 public:
  // `figures`: whether bytes, FLOPs or seconds differ from the model's too.
  void another_model(std::string_view key, std::string what, bool figures = false) {
    all_.push_back({key, std::move(what), true, figures});
  }
  void same_model(std::string_view key, std::string what) {
    all_.push_back({key, std::move(what), false, false});
  }
  std::vector<Approximation> take() { return std::move(all_); }

 private:
  std::vector<Approximation> all_;
};

void add_attention(List& list, const Model& model) {
  if (model.latent) {
    list.another_model(
        "latent_attention",
        "keys and values of latent attention are multiplied as wide as queries, and its rotary "
        "key is not shared",
        true);
  }
  if (model.query_key_norm != describe::QueryKeyNorm::none && model.norm == describe::Norm::layer_norm) {
    list.another_model("query_key_norm", "norms over query and key heads are RMSNorms");
  }
  if (model.position == describe::Position::relative_bias) {
    list.another_model("position", "the relative biases are not added to the scores");
  }
}

}  // namespace

std::vector<Approximation> approximations_of(const Model& model) {
  List list;
  if (!model.is_shape()) return {};
  if (model.architecture == describe::Architecture::encoder_decoder) {
    list.another_model("architecture",
                       "encoder and decoder are computed as one stack without cross attention", true);
  }
  if (model.experts) {
    list.another_model("mixture_of_experts",
                       "tokens are not routed by their scores: every expert is given the same number of them",
                       true);
    if (model.experts->layers < model.layers) {
      list.same_model("mixture_of_experts.layers", "dense layers come before those with experts");
    }
  }
  add_attention(list, model);
  if (model.norm_placement == describe::NormPlacement::after) {
    list.another_model("norm_placement", "norms stand before attention and MLP, and not behind the sum");
  }
  if (!model.rotary_scaling.empty()) {
    list.another_model("rotary.scaling",
                       fmt::format("rotary positions are not scaled by {}", model.rotary_scaling));
  }
  for (const describe::ExtraParameters& extra : model.extra) {
    list.another_model("extra", fmt::format("{} is held and updated, and not computed with", extra.name),
                       true);
  }
  for (const describe::LeftOut& left : model.left_out) {
    list.another_model(left.key, left.what, left.changes_figures);
  }
  return list.take();
}

}  // namespace zeroplan::program
