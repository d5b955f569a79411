#include "reports/models_report.hpp"

#include <fmt/format.h>

#include "reports/keyed_table.hpp"
#include "reports/model_data.hpp"
#include "reports/numbers.hpp"

namespace zeroplan::reports {
namespace {

using describe::Model;
using describe::ParameterGroup;
using describe::ParameterTensor;

// Learned position tables whose rows are left open are counted for the longest sequence that is stated.
std::int64_t counted_sequence(const Model& model) { return model.max_sequence; }

Data published_data(const Model& model) {
  if (!model.published) return {};
  const describe::PublishedCount& published = *model.published;
  return Data::map()
      .set("parameters", published.parameters)
      .set("exact", published.exact)
      .set("difference", published.parameters - describe::count_parameters(model, counted_sequence(model)))
      .set("explanation", published.explanation)
      .set("source", published.source);
}

std::string shape_of(const ParameterTensor& tensor) {
  std::string text = tensor.inputs == 1
                         ? thousands(tensor.outputs)
                         : fmt::format("{} x {}", thousands(tensor.outputs), thousands(tensor.inputs));
  if (tensor.copies > 1) text = fmt::format("{} x ({})", thousands(tensor.copies), text);
  return text;
}

Data tensors_data(const std::vector<ParameterGroup>& groups) {
  Data list = Data::list();
  for (const ParameterGroup& group : groups) {
    for (const ParameterTensor& tensor : group.tensors) {
      list.add(Data::map()
                   .set("group", name_of(group.kind))
                   .set("layers", group.layers)
                   .set("name", tensor.name)
                   .set("outputs", tensor.outputs)
                   .set("inputs", tensor.inputs)
                   .set("copies", tensor.copies)
                   .set("parameters", tensor.elements())
                   .set("sharding", name_of(tensor.sharding))
                   .set("expert", tensor.expert));
    }
  }
  return list;
}

Table tensors_table(const ParameterGroup& group) {
  Table table{{{"tensor", false}, {"shape"}, {"parameters"}, {"under tensor parallelism", false}}, {}, {}};
  for (const ParameterTensor& tensor : group.tensors) {
    table.rows.push_back({std::string(tensor.name), shape_of(tensor), tensor.elements(),
                          std::string(name_of(tensor.sharding))});
  }
  table.rules_before = {table.rows.size()};
  table.rows.push_back({std::string("all"), std::string(), group.elements_per_layer(), std::string()});
  return table;
}

std::string group_title(const ParameterGroup& group) {
  std::string name(name_of(group.kind));
  if (group.layers == 1) return name;
  return fmt::format("{}, {} alike: {} parameters", name, group.layers,
                     thousands(group.layers * group.elements_per_layer()));
}

// Every shape, nested descriptions with a dotted name.
void add_shape_rows(const Data::Map& entries, const std::string& prefix, Table& table) {
  for (const DataEntry& entry : entries) {
    const std::string key = prefix.empty() ? entry.key : prefix + '.' + entry.key;
    if (const auto* inner = entry.value.as<Data::Map>()) {
      add_shape_rows(*inner, key, table);
    } else if (entry.value.as<Data::List>() == nullptr) {
      table.rows.push_back({key, cell_text(cell_of(&entry.value, kPlain))});
    }
  }
}

// By how much our count is above the published one, in percent.
Cell off_by(const Data& row) {
  const double published = number_at(row, "published_parameters");
  return published == 0 ? Cell() : Cell(Real{100 * (number_at(row, "parameters") / published - 1), 2});
}

void add_published(std::vector<Block>& blocks, const Model& model) {
  if (!model.published) return;
  const describe::PublishedCount& published = *model.published;
  const std::int64_t difference =
      published.parameters - describe::count_parameters(model, counted_sequence(model));
  std::string text =
      fmt::format("Published: {}{} parameters, {} our count", thousands(published.parameters),
                  published.exact ? "" : " (rounded)",
                  difference == 0 ? std::string("equal to")
                                  : fmt::format("{} {}", thousands(difference < 0 ? -difference : difference),
                                                difference < 0 ? "below" : "above"));
  blocks.emplace_back(Paragraph{text + '.'});
  if (!published.explanation.empty()) blocks.emplace_back(Paragraph{"Why: " + published.explanation});
  if (!published.source.empty()) blocks.emplace_back(Paragraph{"Source: " + published.source});
}

}  // namespace

Report models_list_report(std::string_view version, const std::vector<Model>& models) {
  Report report;
  Data rows = Data::list();
  for (const Model& model : models) {
    const std::int64_t parameters = describe::count_parameters(model, counted_sequence(model));
    const std::int64_t layers = model.encoder_layers + model.layers;
    rows.add(Data::map()
                 .set("name", model.name)
                 .set("family", model.family)
                 .set("parameters", parameters)
                 .set("published_parameters", model.published ? Data(model.published->parameters) : Data())
                 .set("layers", layers)
                 .set("hidden", model.hidden)
                 .set("heads", model.heads)
                 .set("vocabulary", model.vocabulary)
                 .set("huggingface_id", model.huggingface_id));
  }
  report.data =
      Data::map().set("schema", "zeroplan.models/1").set("version", version).set("models", std::move(rows));
  report.rows = "models";
  report.blocks.emplace_back(table_of(list_at(report.data, report.rows), {{{"model", false}, "name"},
                                                                          {{"family", false}, "family"},
                                                                          {{"parameters"}, "parameters"},
                                                                          {{"off %"}, "", kPlain, off_by},
                                                                          {{"layers"}, "layers"},
                                                                          {{"hidden"}, "hidden"},
                                                                          {{"heads"}, "heads"},
                                                                          {{"vocabulary"}, "vocabulary"}}));
  report.blocks.emplace_back(Paragraph{
      "off %: by how much our count is above the published one; zeroplan models show MODEL says why."});
  return report;
}

Report model_report(std::string_view version, const Model& model) {
  Report report;
  const Data shape = model_data(model, counted_sequence(model));
  std::vector<ParameterGroup> groups;
  if (model.is_shape()) groups = describe::parameter_groups(model, counted_sequence(model));

  const std::int64_t parameters = describe::count_parameters(model, counted_sequence(model));
  report.blocks.emplace_back(Paragraph{
      fmt::format("{}: {} parameters ({})", model.name, thousands(parameters), short_count(parameters))});
  add_published(report.blocks, model);
  Table shapes{{{"shape", false}, {"", false}}, {}, {}};
  add_shape_rows(*shape.as<Data::Map>(), "", shapes);
  report.blocks.emplace_back(std::move(shapes));
  for (const ParameterGroup& group : groups) {
    report.blocks.emplace_back(Heading{group_title(group)});
    report.blocks.emplace_back(tensors_table(group));
  }
  add_notes(report.blocks, model.notes);

  report.data = Data::map()
                    .set("schema", "zeroplan.model_description/1")
                    .set("version", version)
                    .set("model", shape)
                    .set("family", model.family)
                    .set("huggingface_id", model.huggingface_id)
                    .set("published", published_data(model))
                    .set("tensors", tensors_data(groups));
  report.rows = "tensors";
  return report;
}

Report model_count_report(std::string_view version, const Model& model) {
  Report report;
  const std::int64_t parameters = describe::count_parameters(model, counted_sequence(model));
  report.blocks.emplace_back(Paragraph{std::to_string(parameters)});
  add_notes(report.blocks, model.notes);
  report.data =
      Data::map()
          .set("schema", "zeroplan.model_count/1")
          .set("version", version)
          .set("name", model.name)
          .set("parameters", parameters)
          .set("active_parameters", describe::count_active_parameters(model, counted_sequence(model)))
          .set("published", published_data(model))
          .set("notes", texts_data(model.notes));
  return report;
}

}  // namespace zeroplan::reports
