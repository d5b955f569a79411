#include "reports/detected_report.hpp"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "planner/describe/machine/hardware_reader.hpp"
#include "planner/describe/machine/recognize.hpp"
#include "reports/keyed_table.hpp"
#include "reports/machine_description.hpp"
#include "reports/numbers.hpp"
#include "reports/writers.hpp"

namespace zeroplan::reports {
namespace {

template <class Value>
Data known(const std::optional<Value>& value) {
  return value ? Data(*value) : Data();
}

Data known(const std::optional<std::vector<std::string>>& texts) {
  return texts ? texts_data(*texts) : Data();
}

Data numbers_data(const std::vector<std::int64_t>& numbers) {
  Data list = Data::list();
  for (const std::int64_t number : numbers) list.add(number);
  return list;
}

Data host_data(const FoundHost& host) {
  return Data::map()
      .set("processor", host.processor.empty() ? Data() : Data(host.processor))
      .set("sockets", known(host.sockets))
      .set("cores", known(host.cores))
      .set("logical_cpus", host.logical_cpus)
      .set("numa_nodes", known(host.numa_nodes))
      .set("memory_bytes", known(host.memory_bytes));
}

Data driver_data(const FoundDriver& driver) {
  return Data::map()
      .set("works", driver.works)
      .set("problem", driver.problem)
      .set("version", known(driver.version))
      .set("cuda_version", driver.cuda_version ? Data(cuda_version_text(*driver.cuda_version)) : Data());
}

Data gpu_data(const FoundGpu& gpu) {
  return Data::map()
      .set("index", gpu.index)
      .set("name", known(gpu.name))
      .set("preset", known(describe::device_preset_of(gpu)))
      .set("uuid", known(gpu.uuid))
      .set("pci_address", known(gpu.pci_address))
      .set("total_bytes", known(gpu.total_bytes))
      .set("used_bytes", known(gpu.used_bytes))
      .set("reserved_bytes", known(gpu.reserved_bytes))
      .set("compute_capability", known(gpu.compute_capability))
      .set("power_limit_watts", known(gpu.power_limit_watts))
      .set("power_watts", known(gpu.power_watts))
      .set("sm_clock_mhz", known(gpu.sm_clock_mhz))
      .set("most_sm_clock_mhz", known(gpu.most_sm_clock_mhz))
      .set("memory_clock_mhz", known(gpu.memory_clock_mhz))
      .set("most_memory_clock_mhz", known(gpu.most_memory_clock_mhz))
      .set("memory_bus_bits", known(gpu.memory_bus_bits))
      .set("throttle_reasons", known(gpu.throttle_reasons))
      .set("ecc", known(gpu.ecc))
      .set("mig", known(gpu.mig))
      .set("persistence", known(gpu.persistence))
      .set("nvlinks", known(gpu.nvlinks))
      .set("nvlink_gbytes_per_s", known(gpu.nvlink_gbytes_per_s))
      .set("nvlinks_end_in_a_switch", known(gpu.nvlinks_end_in_a_switch))
      .set("pcie_generation", known(gpu.pcie_generation))
      .set("pcie_lanes", known(gpu.pcie_lanes));
}

Data path_data(const FoundPath& path) {
  return Data::map()
      .set("first", path.first)
      .set("second", path.second)
      .set("nvlink", known(path.nvlink))
      .set("pcie", known(path.pcie));
}

Data nic_data(const FoundNic& nic) {
  return Data::map()
      .set("name", nic.name)
      .set("interfaces", texts_data(nic.interfaces))
      .set("kind", nic.kind)
      .set("active", known(nic.active))
      .set("gbits_per_s", known(nic.gbits_per_s))
      .set("pci_address", known(nic.pci_address))
      .set("pci_root", known(nic.pci_root))
      .set("gpus", numbers_data(nic.gpus));
}

template <class Item>
Data list_data(const std::vector<Item>& items, Data (*data_of)(const Item& item)) {
  Data list = Data::list();
  for (const Item& item : items) list.add(data_of(item));
  return list;
}

// What to give to --hw, and why; no argument where a description must be filled in first.
struct Advice {
  std::optional<std::string> argument;
  std::string reason;
};

Advice advice_for(const FoundMachine& machine) {
  const auto count = static_cast<std::int64_t>(machine.gpus.size());
  if (count == 0) {
    const std::string why = machine.driver.works ? "NVIDIA's driver sees none" : machine.driver.problem;
    return {"cpu", fmt::format("There is no GPU to plan for: {}. Plans for this machine's processors take "
                               "--hw cpu, or what zeroplan calibrate writes.",
                               why)};
  }
  const std::vector<std::string> nodes = describe::node_presets_of(machine);
  if (nodes.size() == 1) return {nodes.front(), fmt::format("This machine is a {}.", nodes.front())};
  const auto device = describe::device_preset_of(machine);
  if (!device) {
    return {{},
            "No shipped description stands for all of these GPUs. zeroplan hw detect --describe FILE "
            "writes one with what was read; fill in what is null, and give it to --hw."};
  }
  const std::string argument = fmt::format("{} --gpus {}", *device, count);
  if (count == 1) return {argument, fmt::format("The GPU is a {}.", *device)};
  if (nodes.empty()) {
    return {argument, fmt::format("The GPUs are {}, and no shipped node is like this machine: links and "
                                  "network are then those of the usual node of that device. zeroplan hw "
                                  "detect --describe FILE writes this machine's own.",
                                  *device)};
  }
  return {argument,
          fmt::format("The GPUs are {}, linked as in {}: name the one that this is, or have zeroplan "
                      "hw detect --describe FILE write this machine's own.",
                      *device, fmt::join(nodes, ", "))};
}

Data answer_data(std::string_view version, const FoundMachine& machine, const Advice& advice) {
  const bool can_describe = !machine.gpus.empty() && machine.gpus.front().total_bytes;
  const auto fabric = describe::fabric_of(machine);
  return Data::map()
      .set("schema", "zeroplan.detected/1")
      .set("version", version)
      .set("host", host_data(machine.host))
      .set("driver", driver_data(machine.driver))
      .set("gpus", list_data(machine.gpus, gpu_data))
      .set("paths", list_data(machine.paths, path_data))
      .set("fabric", fabric ? Data(describe::fabric_names()[static_cast<std::size_t>(*fabric)]) : Data())
      .set("nics", list_data(machine.nics, nic_data))
      .set("node_presets", texts_data(describe::node_presets_of(machine)))
      .set("hw", known(advice.argument))
      .set("hw_reason", advice.reason)
      .set("description", can_describe ? machine_description(machine) : Data());
}

// "1980 of 1980", with "?" for what is not known.
std::function<Cell(const Data&)> of_most(std::string now, std::string most) {
  return [now = std::move(now), most = std::move(most)](const Data& row) -> Cell {
    const auto text = [&](const std::string& key) {
      const Data* value = row.find(key);
      return value == nullptr || value->is_null() ? std::string("?")
                                                  : fmt::format("{:.0f}", number_of(*value));
    };
    return text(now) + " of " + text(most);
  };
}

// The texts or numbers of a list with commas between; `none` where it is empty.
std::function<Cell(const Data&)> joined(std::string key, std::string none) {
  return [key = std::move(key), none = std::move(none)](const Data& row) -> Cell {
    const Data* list = row.find(key);
    if (list == nullptr || list->is_null()) return std::string("?");
    std::vector<std::string> parts;
    for (const Data& item : list_at(row, key)) {
      const auto* text = item.as<std::string>();
      parts.push_back(text != nullptr ? *text : cell_text(cell_of(&item, kPlain)));
    }
    return parts.empty() ? none : fmt::format("{}", fmt::join(parts, ", "));
  };
}

void add_gpus(const Data& data, std::vector<Block>& blocks) {
  const Data::List& gpus = list_at(data, "gpus");
  if (gpus.empty()) return;
  blocks.emplace_back(table_of(gpus, {{{"GPU"}, "index"},
                                      {{"name", false}, "name"},
                                      {{"preset", false}, "preset"},
                                      {{"PCI address", false}, "pci_address"},
                                      {{"GiB"}, "total_bytes", kGibibytes},
                                      {{"used"}, "used_bytes", kGibibytes},
                                      {{"sm"}, "compute_capability", decimals(1)}}));
  blocks.emplace_back(
      table_of(gpus, {{{"GPU"}, "index"},
                      {{"SM MHz"}, "", kPlain, of_most("sm_clock_mhz", "most_sm_clock_mhz")},
                      {{"watts"}, "", kPlain, of_most("power_watts", "power_limit_watts")},
                      {{"NVLinks"}, "nvlinks"},
                      {{"GB/s each"}, "nvlink_gbytes_per_s", decimals(2)},
                      {{"PCIe"}, "pcie_generation"},
                      {{"lanes"}, "pcie_lanes"},
                      {{"ECC", false}, "ecc"},
                      {{"MIG", false}, "mig"},
                      {{"clocks held by", false}, "", kPlain, joined("throttle_reasons", "-")}}));
}

// Pairs that reach each other alike, in one row.
void add_paths(const FoundMachine& machine, std::vector<Block>& blocks) {
  constexpr std::size_t kShownPairs = 8;
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> alike;
  for (const FoundPath& path : machine.paths) {
    const std::string nvlink = !path.nvlink ? "not known" : *path.nvlink ? "yes" : "no";
    alike[{nvlink, path.pcie.value_or("not known")}].push_back(fmt::format("{}-{}", path.first, path.second));
  }
  if (alike.empty()) return;
  Table table{
      {{"over NVLink", false}, {"PCIe paths share", false}, {"pairs"}, {"which GPUs", false}}, {}, {}};
  for (auto& [how, pairs] : alike) {
    const auto count = static_cast<std::int64_t>(pairs.size());
    if (pairs.size() > kShownPairs) {
      pairs.resize(kShownPairs);
      pairs.emplace_back("...");
    }
    table.rows.push_back({how.first, how.second, count, fmt::format("{}", fmt::join(pairs, ", "))});
  }
  blocks.emplace_back(std::move(table));
}

void add_nics(const Data& data, std::vector<Block>& blocks) {
  const Data::List& nics = list_at(data, "nics");
  if (nics.empty()) return;
  blocks.emplace_back(table_of(nics, {{{"network", false}, "name"},
                                      {{"interfaces", false}, "", kPlain, joined("interfaces", "-")},
                                      {{"kind", false}, "kind"},
                                      {{"up", false}, "active"},
                                      {{"Gbit/s"}, "gbits_per_s", kSignificant},
                                      {{"PCI address", false}, "pci_address"},
                                      {{"PCIe root", false}, "pci_root"},
                                      {{"GPUs of that root", false}, "", kPlain, joined("gpus", "-")}}));
}

std::string host_text(const FoundHost& host) {
  std::string text = host.processor.empty() ? "A processor without a name" : host.processor;
  text += ": ";
  if (host.sockets) text += counted(*host.sockets, "socket") + ", ";
  if (host.cores) text += counted(*host.cores, "core") + ", ";
  text += counted(host.logical_cpus, "logical CPU");
  if (host.numa_nodes) text += ", " + counted(*host.numa_nodes, "NUMA node");
  if (host.memory_bytes) {
    text += fmt::format(", {:.1f} GiB of memory", static_cast<double>(*host.memory_bytes) / kGiB);
  }
  return text + ".";
}

}  // namespace

std::string cuda_version_text(std::int64_t version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string driver_text(const FoundDriver& driver) {
  std::string text = driver.version.value_or("of an unknown version");
  if (driver.cuda_version)
    text += fmt::format(", for CUDA up to {}", cuda_version_text(*driver.cuda_version));
  return text;
}

Report detected_report(std::string_view version, const FoundMachine& machine) {
  const Advice advice = advice_for(machine);
  Report report;
  report.data = answer_data(version, machine, advice);
  if (!machine.gpus.empty()) report.rows = "gpus";
  report.blocks.emplace_back(Paragraph{host_text(machine.host)});
  if (machine.driver.works) {
    report.blocks.emplace_back(Paragraph{fmt::format("NVIDIA driver {}.", driver_text(machine.driver))});
  }
  add_gpus(report.data, report.blocks);
  add_paths(machine, report.blocks);
  add_nics(report.data, report.blocks);
  report.blocks.emplace_back(Paragraph{advice.reason});
  if (advice.argument) {
    report.blocks.emplace_back(
        Commands{{fmt::format("zeroplan fit gpt2-xl --hw {} --zero 2", *advice.argument)}});
  } else if (const Data* description = report.data.find("description"); !description->is_null()) {
    Lines lines;
    std::istringstream text(write_yaml(*description));
    for (std::string line; std::getline(text, line);) lines.lines.push_back(line);
    report.blocks.emplace_back(std::move(lines));
  }
  return report;
}

}  // namespace zeroplan::reports
