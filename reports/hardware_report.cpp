#include "reports/hardware_report.hpp"

#include <fmt/format.h>

#include <array>
#include <optional>

#include "reports/inputs.hpp"
#include "reports/keyed_table.hpp"
#include "reports/numbers.hpp"

namespace zeroplan::reports {
namespace {

using describe::Figure;

// A figure under the name that says its unit.
struct NamedFigure {
  std::string name;
  const Figure* figure = nullptr;
};

std::vector<NamedFigure> figures_of(const describe::Cluster& cluster) {
  std::vector<NamedFigure> list;
  const auto add = [&](std::string name, const std::optional<Figure>& figure) {
    if (figure) list.push_back({std::move(name), &*figure});
  };
  const describe::Device& device = cluster.device;
  add("capacity.brochure_bytes", device.capacity.brochure_bytes);
  add("capacity.nvml_bytes", device.capacity.nvml_bytes);
  add("capacity.driver_reserved_bytes", device.capacity.driver_reserved_bytes);
  add("capacity.cuda_bytes", device.capacity.cuda_bytes);
  add("capacity.host_bytes", device.capacity.host_bytes);
  add("overheads.context_bytes", device.overheads.context_bytes);
  add("overheads.library_workspace_bytes", device.overheads.library_workspace_bytes);
  add("overheads.communicator_bytes", device.overheads.communicator_bytes);
  add("overheads.allocator_round_bytes", device.overheads.allocator_round_bytes);
  add("compute_capability", device.compute_capability);
  add("multiprocessors", device.multiprocessors);
  add("peak_fp32_tflops", device.peak_fp32_tflops);
  add("peak_tf32_tflops", device.peak_tf32_tflops);
  add("peak_fp16_tflops", device.peak_fp16_tflops);
  add("peak_bf16_tflops", device.peak_bf16_tflops);
  add("peak_fp8_tflops", device.peak_fp8_tflops);
  add("memory_gbytes_per_s", device.memory_gbytes_per_s);
  add("memory_measured_gbytes_per_s", device.memory_measured_gbytes_per_s);
  add("shortest_kernel_us", device.shortest_kernel_us);
  add("nvlink_links", device.nvlink_links);
  add("nvlink_gbytes_per_s", device.nvlink_gbytes_per_s);
  add("nccl_link_gbytes_per_s", device.nccl_link_gbytes_per_s);
  add("pcie_gbytes_per_s", device.pcie_gbytes_per_s);
  add("host_to_device_gbytes_per_s", device.host_to_device_gbytes_per_s);
  if (!cluster.node) return list;
  add("node.link_gbytes_per_s_per_device", cluster.node->link_gbytes_per_s_per_device);
  add("node.nics", cluster.node->nics);
  add("node.nic_gbits_per_s", cluster.node->nic_gbits_per_s);
  add("node.internode_gbytes_per_s", cluster.node->internode_gbytes_per_s);
  add("node.host_memory_bytes", cluster.node->host_memory_bytes);
  return list;
}

std::string number_text(double value) {
  const auto whole = static_cast<std::int64_t>(value);
  return static_cast<double>(whole) == value ? thousands(whole) : fmt::format("{}", value);
}

std::string remark_of(const Figure& figure) {
  std::string text = figure.source;
  if (figure.assumed) text = "assumed: " + text;
  if (!figure.note.empty()) text += " (" + figure.note + ")";
  return text;
}

std::string value_text(const NamedFigure& named) {
  const double value = named.figure->value;
  if (!named.name.ends_with("_bytes")) return number_text(value);
  return fmt::format("{} ({:.2f} GiB)", number_text(value), value / static_cast<double>(kGiB));
}

Data figures_data(const std::vector<NamedFigure>& figures) {
  Data list = Data::list();
  for (const NamedFigure& named : figures) {
    list.add(Data::map()
                 .set("name", named.name)
                 .set("value", named.figure->value)
                 .set("assumed", named.figure->assumed)
                 .set("source", named.figure->source)
                 .set("note", named.figure->note));
  }
  return list;
}

Data attained_data(const describe::Device& device) {
  Data list = Data::list();
  for (const describe::AttainedMatmul& attained : device.attained_matmul) {
    list.add(Data::map()
                 .set("dtype", attained.dtype)
                 .set("shape", attained.shape)
                 .set("tflops", attained.tflops)
                 .set("tflops_high", attained.tflops_high)
                 .set("source", attained.source)
                 .set("note", attained.note));
  }
  return list;
}

// A figure's sources are long: they stand below the figure, not beside it.
void add_figures(std::vector<Block>& blocks, const std::vector<NamedFigure>& figures) {
  Table values{{{"figure", false}, {"value"}, {"source", false}}, {}, {}};
  std::vector<std::string> sources;
  const auto number_of = [&](const std::string& text) {
    for (std::size_t i = 0; i < sources.size(); ++i) {
      if (sources[i] == text) return i + 1;
    }
    sources.push_back(text);
    return sources.size();
  };
  for (const NamedFigure& named : figures) {
    values.rows.push_back(
        {named.name, value_text(named), fmt::format("[{}]", number_of(remark_of(*named.figure)))});
  }
  blocks.emplace_back(std::move(values));
  for (std::size_t i = 0; i < sources.size(); ++i) {
    blocks.emplace_back(Paragraph{fmt::format("[{}] {}", i + 1, sources[i])});
  }
}

std::string fabric_text(describe::Fabric fabric) {
  constexpr std::array<std::string_view, 5> names{"NVSwitch", "a cube mesh of NVLink", "PCIe",
                                                  "Infinity Fabric", "shared memory"};
  return std::string(names[static_cast<std::size_t>(fabric)]);
}

}  // namespace

Report hardware_list_report(std::string_view version, const std::vector<describe::HardwareName>& names) {
  constexpr std::array<std::string_view, 3> kinds{"device", "node", "cluster"};
  Report report;
  Data rows = Data::list();
  for (const describe::HardwareName& name : names) {
    rows.add(Data::map()
                 .set("name", name.name)
                 .set("kind", kinds[static_cast<std::size_t>(name.kind)])
                 .set("title", name.title)
                 .set("aliases", fmt::format("{}", fmt::join(name.aliases, ", "))));
  }
  report.data = Data::map()
                    .set("schema", "zeroplan.hardware_list/1")
                    .set("version", version)
                    .set("machines", std::move(rows));
  report.rows = "machines";
  report.blocks.emplace_back(
      table_of(list_at(report.data, report.rows), {{{"name", false}, "name"},
                                                   {{"kind", false}, "kind"},
                                                   {{"what it is", false}, "title"},
                                                   {{"also called", false}, "aliases"}}));
  return report;
}

Report hardware_report(std::string_view version, const describe::Cluster& cluster) {
  Report report;
  const std::vector<NamedFigure> figures = figures_of(cluster);
  report.blocks.emplace_back(Paragraph{machine_line(cluster)});
  report.blocks.emplace_back(Paragraph{
      fmt::format("{}{}", cluster.device->title.empty() ? cluster.device->name : cluster.device->title,
                  cluster.node ? "; inside a node: " + fabric_text(cluster.node->fabric) : "")});
  report.blocks.emplace_back(Paragraph{
      fmt::format("Usable memory of a device: {:.2f} GiB ({}).",
                  static_cast<double>(cluster.device->capacity.usable_bytes()) / static_cast<double>(kGiB),
                  cluster.device->capacity.basis())});
  add_figures(report.blocks, figures);
  report.data = Data::map()
                    .set("schema", "zeroplan.machine/1")
                    .set("version", version)
                    .set("machine", machine_data(cluster))
                    .set("capacity_bytes", cluster.device->capacity.usable_bytes())
                    .set("capacity_basis", cluster.device->capacity.basis())
                    .set("figures", figures_data(figures))
                    .set("attained_matmul", attained_data(cluster.device));
  report.rows = "figures";
  const Data::List& products = list_at(report.data, "attained_matmul");
  if (!products.empty()) {
    report.blocks.emplace_back(table_of(products, {{{"matrix product reached", false}, "shape"},
                                                   {{"dtype", false}, "dtype"},
                                                   {{"TFLOPS"}, "tflops", decimals(1)}}));
  }
  return report;
}

}  // namespace zeroplan::reports
