#include "executor/weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "executor/device/floats.hpp"
#include "executor/storage/held.hpp"
#include "executor/storage/placement.hpp"
#include "executor/storage/require_tensors.hpp"
#include "executor/storage/save_tensors.hpp"
#include "planner/error.hpp"

namespace zeroplan::executor {

namespace fs = std::filesystem;

using nlohmann::json;
using program::NamedWeight;

namespace {

constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::string_view kFile = "model.safetensors";

[[noreturn]] void refuse(const std::string& source, const std::string& key, const std::string& why) {
  throw ConfigurationError(Problem{source, 0, key, why});
}

// The files that an index names, each once. They stand beside it.
std::set<std::string> files_of_index(const std::string& path) {
  std::ifstream stream(path);
  const json index = json::parse(stream, nullptr, false);
  std::set<std::string> files;
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    refuse(path, "", "is no index of safetensors: expected an object with weight_map");
  }
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string()) refuse(path, "weight_map." + name, "expected the name of a file");
    const fs::path named(file.get<std::string>());
    if (named != named.filename()) refuse(path, "weight_map." + name, "expected a file beside the index");
    files.insert(named.string());
  }
  return files;
}

// The tensors of a model, each stored one once, in the order of the names.
std::vector<TensorEntry> stored_tensors(const program::WeightNames& names) {
  std::vector<TensorEntry> tensors;
  std::set<std::string_view> known;
  for (const NamedWeight& weight : names.weights) {
    if (known.insert(weight.name).second) tensors.push_back({.name = weight.name, .shape = weight.shape});
  }
  return tensors;
}

}  // namespace

WeightFiles::WeightFiles(const std::string& path, program::WeightNames names)
    : source_(path), names_(std::move(names)) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    const fs::path index = fs::path(path) / kIndex;
    const fs::path file = fs::path(path) / kFile;
    if (fs::exists(index, error)) {
      open(index.string());
    } else if (fs::exists(file, error)) {
      open(file.string());
    } else {
      refuse("--weights", "", fmt::format("{} has neither {} nor {}", zeroplan::quoted(path), kFile, kIndex));
    }
  } else if (!fs::exists(path, error)) {
    refuse("--weights", "", fmt::format("{} cannot be read: there is no such file", zeroplan::quoted(path)));
  } else {
    open(path);
  }
  require_complete();
}

void WeightFiles::open(const std::string& path) {
  if (!path.ends_with(".json")) {
    files_.push_back(std::make_unique<MappedTensorFile>(path));
    return;
  }
  for (const std::string& file : files_of_index(path)) {
    files_.push_back(std::make_unique<MappedTensorFile>((fs::path(path).parent_path() / file).string()));
  }
}

WeightFiles::Found WeightFiles::find(const std::string& name) const {
  const bool prefixed = name.starts_with(names_.prefix);
  for (const std::string& tried : {name, prefixed ? name.substr(names_.prefix.size()) : name}) {
    for (const auto& file : files_) {
      if (const TensorEntry* tensor = file->find(tried)) return {file.get(), tensor};
    }
  }
  return {};
}

void WeightFiles::require_complete() const {
  Problems problems;
  const std::vector<TensorEntry> expected = stored_tensors(names_);
  std::set<std::string> known;
  for (const TensorEntry& tensor : expected) known.insert(tensor.name);
  std::vector<std::string> present;  // with the prefix
  const auto whole = [&](const std::string& name) {
    return known.contains(names_.prefix + name) ? names_.prefix + name : name;
  };
  for (const auto& file : files_) {
    for (const TensorEntry& tensor : file->tensors()) {
      const std::string name = whole(tensor.name);
      const bool is_tied_head = !names_.table.empty() && name == names_.head;
      if (!program::is_no_parameter(name) && !is_tied_head) present.push_back(name);
    }
    for (const auto& [name, dtype] : file->others()) {
      if (program::is_no_parameter(name)) continue;
      problems.add({file->path(), 0, name, fmt::format("has the type {}, expected F32, F16 or BF16", dtype)});
    }
  }
  compare_tensors(
      source_, expected, [&](std::string_view name) { return find(std::string(name)).tensor; }, present,
      problems);
  problems.throw_if_any();
  if (names_.table.empty()) return;
  const Found head = find(names_.head);
  const Found table = find(names_.table);
  if (head.tensor == nullptr) return;
  const bool same = head.tensor->type == table.tensor->type && head.tensor->shape == table.tensor->shape &&
                    std::memcmp(head.file->data(*head.tensor), table.file->data(*table.tensor),
                                static_cast<std::size_t>(table.tensor->bytes())) == 0;
  if (!same)
    refuse(source_, names_.head, fmt::format("is another than {}, and the model ties them", names_.table));
}

// Finds the stored element of a parameter's. Elements come tensor by tensor, so the last tensor is kept.
class WeightReader {
 public:
  explicit WeightReader(const WeightFiles& files) : files_(files) {
    for (const NamedWeight& weight : files.names_.weights)
      by_own_.emplace(std::pair(weight.own, weight.layer), &weight);
  }

  float operator()(const ParameterElement& element) {
    if (element.name != name_ || element.layer != layer_ || weight_ == nullptr) turn_to(element);
    const Elements outputs =
        weight_->shape.size() < 2 ? weight_->shape[0] : weight_->shape[weight_->transposed ? 1 : 0];
    const Elements output = weight_->first_output + element.output;
    const Elements inputs = found_.tensor->elements() / outputs;
    // Rows of a padded vocabulary.
    if (output >= outputs || element.input >= inputs) return 0;
    const Elements at =
        weight_->transposed ? element.input * outputs + output : output * inputs + element.input;
    const program::DataType type = found_.tensor->type;
    const float value = load_float(found_.file->data(*found_.tensor) + at * program::bytes_of(type), type);
    if (!std::isfinite(value))
      refuse(found_.file->path(), found_.tensor->name, "has a value that is not finite");
    return value;
  }

 private:
  void turn_to(const ParameterElement& element) {
    const auto found = by_own_.find(std::pair(std::string(element.name), element.layer));
    if (found == by_own_.end()) throw std::logic_error(fmt::format("{} has no name in files", element.name));
    name_ = element.name;
    layer_ = element.layer;
    weight_ = found->second;
    found_ = files_.find(weight_->name);
  }

  const WeightFiles& files_;
  std::map<std::pair<std::string, std::int64_t>, const NamedWeight*> by_own_;
  std::string_view name_;
  std::int64_t layer_ = -1;
  const NamedWeight* weight_ = nullptr;
  WeightFiles::Found found_;
};

ParameterValue WeightFiles::values() const { return WeightReader(*this); }

namespace {

// The own rows of each column of a transposed tensor lie behind each other in the file.
void write_transposed(Device& device, const program::TensorPlacement& tensor, const NamedWeight& weight,
                      const Held& held, std::pair<Elements, Elements> own, std::size_t entry,
                      TensorSink& sink) {
  const Elements begin = std::max<Elements>(own.first - tensor.offset, 0);
  const Elements end = std::min(own.second - tensor.offset, tensor.outputs * tensor.inputs);
  const Elements stored_outputs = weight.shape[1];
  std::vector<float> all(static_cast<std::size_t>(std::max<Elements>(end - begin, 0)));
  download_floats(device, held.tensor, tensor.offset + begin - held.begin, all);
  std::vector<float> rows;
  for (Elements column = 0; column < tensor.inputs; ++column) {
    const auto rows_before = [&](Elements flat) {
      return div_ceil(std::max<Elements>(flat - column, 0), tensor.inputs);
    };
    const Elements first = rows_before(begin);
    const Elements last = std::min(rows_before(end), tensor.whole_outputs - tensor.first_output);
    if (first >= last) continue;
    rows.clear();
    for (Elements row = first; row < last; ++row) {
      rows.push_back(all[static_cast<std::size_t>(row * tensor.inputs + column - begin)]);
    }
    const Elements stored_row = (tensor.first_input + column) * stored_outputs;
    sink.write(entry, stored_row + weight.first_output + tensor.first_output + first, rows);
  }
}

}  // namespace

void export_weights(const std::string& path, const program::WeightNames& names, Rank& rank,
                    ControlPlane& world) {
  const program::StepProgram& program = rank.program();
  const std::vector<TensorEntry> tensors = stored_tensors(names);
  std::map<std::string_view, std::size_t> entries;
  for (std::size_t i = 0; i < tensors.size(); ++i) entries.emplace(tensors[i].name, i);
  std::map<std::pair<std::string_view, std::int64_t>, const NamedWeight*> by_own;
  for (const NamedWeight& weight : names.weights)
    by_own.emplace(std::pair(std::string_view(weight.own), weight.layer), &weight);

  // "format" is what transformers asks for.
  save_tensors({path, ""}, tensors, {{"format", "pt"}}, world, [&](TensorSink& sink) {
    std::vector<float> block;
    for_each_vector(program, [&](const HeldVector& vector) {
      if (vector.state >= 0) return;
      const Held held = most_exact(vector, rank);
      const std::pair<Elements, Elements> own = own_share(held, vector, program);
      for_each_strip(program, vector.unit, own.first, own.second, [&](const Strip& strip) {
        const program::TensorPlacement& tensor = program.tensors[strip.tensor];
        if (tensor.replicated && !program.speaks_for_replicated()) return;
        const NamedWeight& weight = *by_own.at({tensor.name, vector.layer});
        if (weight.transposed) return;
        write_blocks(rank.device(), held, strip, block, [&](Elements done, std::span<const float> values) {
          sink.write(entries.at(weight.name), weight.first_output * tensor.whole_inputs + strip.whole + done,
                     values);
        });
      });
      for (const program::TensorPlacement& tensor : program.tensors) {
        if (tensor.unit != vector.unit || (tensor.replicated && !program.speaks_for_replicated())) continue;
        const NamedWeight& weight = *by_own.at({tensor.name, vector.layer});
        if (weight.transposed)
          write_transposed(rank.device(), tensor, weight, held, own, entries.at(weight.name), sink);
      }
    });
  });
}

}  // namespace zeroplan::executor
