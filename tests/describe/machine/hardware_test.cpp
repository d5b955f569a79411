#include <doctest/doctest.h>
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "planner/describe/machine/cluster.hpp"
#include "planner/describe/text/embedded.hpp"

using namespace zeroplan;
using namespace zeroplan::describe;

namespace {

const YAML::Node& facts() {
  static const YAML::Node root = YAML::LoadFile(ZEROPLAN_TEST_DATA "/hardware_facts.yaml");
  return root;
}

std::string source_of(const YAML::Node& fact) {
  const auto key = fact["src"].as<std::string>();
  return facts()["sources"][key].as<std::string>();
}

// `figure` is what the reader gave for `fact` = {v:, src:}; `unit` is what one of the fact's units is in the
// figure's.
void check_figure(const std::optional<Figure>& figure, const YAML::Node& fact, double unit = 1) {
  CHECK(figure.has_value() == !fact["v"].IsNull());
  if (!figure || fact["v"].IsNull()) return;
  CHECK(std::abs(figure->value - fact["v"].as<double>() * unit) <= (unit == 1 ? 0 : 0.5));
  CHECK(figure->source == source_of(fact));
  if (fact["note"]) CHECK_FALSE(figure->note.empty());
}

double low_end(const YAML::Node& node) {
  return node.IsSequence() ? node[0].as<double>() : node.as<double>();
}
double high_end(const YAML::Node& node) {
  return node.IsSequence() ? node[1].as<double>() : node.as<double>();
}

void check_matmul(const Device& device, const YAML::Node& list) {
  std::size_t i = 0;
  for (const auto& fact : list) {
    if (fact["TFLOPS"].IsNull()) continue;
    REQUIRE(i < device.attained_matmul.size());
    const AttainedMatmul& entry = device.attained_matmul[i++];
    CHECK(entry.dtype == fact["dtype"].as<std::string>());
    CHECK(entry.shape == fact["shape"].as<std::string>());
    CHECK(entry.tflops == low_end(fact["TFLOPS"]));
    CHECK(entry.tflops_high == high_end(fact["TFLOPS"]));
    CHECK(entry.fraction_of_peak == low_end(fact["fraction_of_peak"]));
    CHECK(entry.fraction_of_peak_high == high_end(fact["fraction_of_peak"]));
    CHECK(entry.source == source_of(fact));
  }
  CHECK(i == device.attained_matmul.size());
}

YAML::Node shipped_file(const std::string& name) {
  return YAML::LoadFile(fmt::format(ZEROPLAN_SOURCE "/hardware_profiles/{}.yaml", name));
}

// The reader passes over attention, so the file itself is compared.
void check_attention(const std::string& device, const YAML::Node& list) {
  const YAML::Node file = shipped_file(device)["attention_attained"];
  REQUIRE(file.size() == list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    CHECK(file[i]["kernel"].as<std::string>() == list[i]["kernel"].as<std::string>());
    CHECK(file[i]["what"].as<std::string>() == list[i]["what"].as<std::string>());
    CHECK(file[i]["source"].as<std::string>() == source_of(list[i]));
    CHECK(YAML::Dump(file[i]["tflops"]) == YAML::Dump(list[i]["TFLOPS"]));
  }
}

using DeviceFigure = std::optional<Figure> Device::*;
const std::map<std::string, DeviceFigure>& device_figures() {
  static const std::map<std::string, DeviceFigure> figures{
      {"compute_capability", &Device::compute_capability},
      {"sms", &Device::multiprocessors},
      {"peak_fp32_TFLOPS", &Device::peak_fp32_tflops},
      {"peak_tf32_TFLOPS", &Device::peak_tf32_tflops},
      {"peak_fp16_TFLOPS", &Device::peak_fp16_tflops},
      {"peak_bf16_TFLOPS", &Device::peak_bf16_tflops},
      {"peak_fp8_TFLOPS", &Device::peak_fp8_tflops},
      {"hbm_GBps", &Device::memory_gbytes_per_s},
      {"hbm_measured_GBps", &Device::memory_measured_gbytes_per_s},
      {"nvlink_links", &Device::nvlink_links},
      {"nvlink_GBps", &Device::nvlink_gbytes_per_s},
      {"nccl_link_GBps", &Device::nccl_link_gbytes_per_s},
      {"pcie_GBps", &Device::pcie_gbytes_per_s},
      {"h2d_measured_GBps", &Device::host_to_device_gbytes_per_s}};
  return figures;
}

std::string folded(std::string name) {
  std::erase_if(name, [](char c) { return c == '-' || c == '_' || c == '.'; });
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

// Calls `visit` with every map of the file that holds a figure or a measurement.
void for_each_sourced(const YAML::Node& node, const std::function<void(const YAML::Node&)>& visit) {
  if (node.IsMap()) {
    if (node["value"] || node["tflops"]) visit(node);
    for (const auto& entry : node) for_each_sourced(entry.second, visit);
  } else if (node.IsSequence()) {
    for (const auto& item : node) for_each_sourced(item, visit);
  }
}

}  // namespace

TEST_CASE("every collected figure of every GPU is what the reader gives") {
  REQUIRE(facts()["gpus"].size() == 19);
  for (const auto& gpu : facts()["gpus"]) {
    const auto key = gpu.first.as<std::string>();
    CAPTURE(key);
    const Device device = find_device(key);
    if (!gpu.second["gemm_attained"]) CHECK(device.attained_matmul.empty());
    for (const auto& fact : gpu.second) {
      const auto name = fact.first.as<std::string>();
      CAPTURE(name);
      if (name == "arch") {
        CHECK(device.architecture == fact.second.as<std::string>());
      } else if (name == "nvidia_smi_MiB") {
        if (!fact.second["v"].IsNull())
          check_figure(device.capacity.nvml_bytes, fact.second, 1024.0 * 1024.0);
      } else if (name == "memory_bytes") {
        REQUIRE(device.capacity.nvml_bytes.has_value() == !fact.second["v"].IsNull());
        if (device.capacity.nvml_bytes) {
          CHECK(device.capacity.nvml_bytes->value == fact.second["v"].as<double>());
          CHECK(device.capacity.nvml_bytes->source == source_of(fact.second));
        }
      } else if (name == "cuda_visible_GiB") {
        check_figure(device.capacity.cuda_bytes, fact.second, 1024.0 * 1024.0 * 1024.0);
      } else if (name == "gemm_attained") {
        check_matmul(device, fact.second);
      } else if (name == "attention_attained") {
        check_attention(device.name, fact.second);
      } else {
        const auto figure = device_figures().find(name);
        REQUIRE_MESSAGE(figure != device_figures().end(), "no field for ", name);
        check_figure(device.*(figure->second), fact.second);
      }
    }
    // And nothing that was not collected.
    for (const auto& field : device_figures()) {
      CAPTURE(field.first);
      if (!gpu.second[field.first]) CHECK_FALSE((device.*field.second).has_value());
    }
  }
}

TEST_CASE("every collected figure of every node is what the reader gives") {
  REQUIRE(facts()["nodes"].size() == 23);
  const std::map<std::string, std::optional<Figure> Node::*> figures{
      {"nvlink_GBps_per_gpu", &Node::link_gbytes_per_s_per_device},
      {"nics", &Node::nics},
      {"nic_Gbps", &Node::nic_gbits_per_s},
      {"inter_node_GBps_per_node", &Node::internode_gbytes_per_s}};
  const std::map<std::string, Fabric> fabrics{{"nvswitch", Fabric::nvswitch},
                                              {"cube_mesh", Fabric::cube_mesh}};
  for (const auto& entry : facts()["nodes"]) {
    const auto key = entry.first.as<std::string>();
    CAPTURE(key);
    const Node node = *find_node(key);
    for (const auto& fact : entry.second) {
      const auto name = fact.first.as<std::string>();
      CAPTURE(name);
      if (name == "gpu") {
        CHECK(node.device == find_device(fact.second.as<std::string>())->name);
      } else if (name == "gpus") {
        CHECK(node.devices == fact.second["v"].as<std::int64_t>());
        CHECK(node.devices_source == source_of(fact.second));
      } else if (name == "fabric") {
        CHECK(node.fabric == fabrics.at(fact.second.as<std::string>()));
      } else if (name == "note") {
        CHECK_FALSE(node.note.empty());
      } else {
        REQUIRE(figures.count(name) == 1);
        check_figure(node.*figures.at(name), fact.second);
      }
    }
  }
}

TEST_CASE("three capacities are kept apart, and the usable one says its basis") {
  constexpr double gib = 1073741824.0;
  constexpr double mib = 1048576.0;
  const Capacity v100 = find_device("v100-32gb")->capacity;
  CHECK(v100.brochure_bytes->value == 32e9);
  CHECK(v100.nvml_bytes->value == 32480 * mib);
  CHECK(v100.usable_bytes() == 34080565494);  // 31.74 GiB
  CHECK(v100.basis() == "CUDA's figure");

  // Not known to CUDA: NVML less what an A100 80 GB keeps back (80 - 79.21 GiB), and said to be assumed.
  const Capacity h100 = find_device("h100")->capacity;
  CHECK_FALSE(h100.cuda_bytes.has_value());
  CHECK(h100.driver_reserved_bytes->assumed);
  CHECK(std::abs(static_cast<double>(h100.usable_bytes()) - (81559 * mib - 0.79 * gib)) <= 1);
  CHECK(h100.basis() == "NVML's figure less an assumed driver reserve");

  const Capacity b200 = find_device("b200")->capacity;
  CHECK_FALSE(b200.nvml_bytes.has_value());
  CHECK_FALSE(b200.brochure_bytes.has_value());
  CHECK(std::abs(static_cast<double>(b200.usable_bytes()) - 178.35 * gib) <= 1);

  Capacity brochure_only;
  brochure_only.brochure_bytes = Figure{32e9, "", "", false};
  CHECK(brochure_only.usable_bytes() == 32000000000);
  CHECK(brochure_only.basis() == "the brochure's figure");
  brochure_only.driver_reserved_bytes = Figure{1e9, "", "", false};
  CHECK(brochure_only.usable_bytes() == 31000000000);
  CHECK_THROWS_AS(Capacity{}.usable_bytes(), std::logic_error);
}

TEST_CASE("a capacity in GB is the number in the device's name") {
  for (const auto& gpu : facts()["gpus"]) {
    const auto key = gpu.first.as<std::string>();
    const std::size_t at = key.rfind("gb");
    if (at == std::string::npos) continue;
    CAPTURE(key);
    const std::size_t digits = key.rfind('_') + 1;
    CHECK(find_device(key)->capacity.brochure_bytes->value == std::stod(key.substr(digits)) * 1e9);
  }
}

TEST_CASE("overheads follow what was measured and published") {
  const YAML::Node overheads = facts()["overheads"];
  const std::map<std::string, std::string> measured_on{
      {"rtx-3090", "RTX 3090"}, {"rtx-4090", "RTX 4090"}, {"a100-80gb", "A100 80GB"}};
  for (const HardwareName& preset : preset_hardware_names()) {
    if (preset.kind != HardwareName::Kind::device || preset.name == "cpu") continue;
    CAPTURE(preset.name);
    const Device device = find_device(preset.name);
    const Overheads& terms = device.overheads;
    REQUIRE(terms.context_bytes.has_value());
    const auto gpu = measured_on.find(preset.name);
    const bool is_v100 = preset.name.starts_with("v100");
    CHECK(terms.context_bytes->assumed == (gpu == measured_on.end() && !is_v100));
    if (terms.context_bytes->assumed) CHECK(terms.context_bytes->note.starts_with("assumed"));
    bool found = false;
    for (const auto& row : overheads["cuda_context_MiB"]) {
      if (row["value"].IsNull()) continue;
      const bool megabytes = row["gpu"].as<std::string>() == "V100";
      const bool same =
          terms.context_bytes->value == high_end(row["value"]) * (megabytes ? 1e6 : 1048576.0) &&
          terms.context_bytes->source == source_of(row);
      if (gpu != measured_on.end() && row["gpu"].as<std::string>() != gpu->second) continue;
      found = found || same;
    }
    CHECK(found);

    const double ring = overheads["nccl_buffers"]["ring_bytes_per_channel_per_rank"]["v"].as<double>();
    REQUIRE(terms.communicator_bytes.has_value());
    CHECK(terms.communicator_bytes->value == 24 * ring);
    CHECK(terms.communicator_bytes->assumed);
    if (device.compute_capability) {
      const YAML::Node workspaces = overheads["cublas_workspace_bytes"];
      const double newer = workspaces[0]["bytes"].as<double>();
      const double older = workspaces[2]["bytes"].as<double>();
      CHECK(terms.library_workspace_bytes->value == (device.compute_capability->value >= 9 ? newer : older));
      CHECK(terms.allocator_round_bytes->value ==
            overheads["cuda_malloc_granularity_bytes"]["v"].as<double>());
    }
  }
}

TEST_CASE(
    "every figure of every shipped file names its source, and names nothing that only its authors have") {
  std::size_t files = 0;
  std::size_t figures = 0;
  for (const auto& file :
       std::filesystem::recursive_directory_iterator(ZEROPLAN_SOURCE "/hardware_profiles")) {
    if (!file.is_regular_file()) continue;
    ++files;
    CAPTURE(file.path().string());
    for_each_sourced(YAML::LoadFile(file.path().string()), [&](const YAML::Node& figure) {
      ++figures;
      REQUIRE(figure["source"]);
      CHECK(figure["source"].as<std::string>().size() >= 8);
    });
  }
  CHECK(files == embedded_hardware().size() + embedded_architectures().size());
  CHECK(figures > 500);
}

TEST_CASE("collectives: the tables that were collected, and the time of each size") {
  const YAML::Node collected = YAML::LoadFile(ZEROPLAN_TEST_DATA "/collectives.yaml");
  const auto check_table = [&](const std::vector<AttainedCollective>& attained, const std::string& name,
                               double first_bytes, std::int64_t devices, std::int64_t nodes) {
    CAPTURE(name);
    const YAML::Node table = collected["measured_busbw_GBps"]["all_reduce_by_size"][name];
    REQUIRE(!attained.empty());
    const AttainedCollective& entry = attained.front();
    CHECK(entry.collective == Collective::all_reduce);
    CHECK(entry.devices == devices);
    CHECK(entry.nodes == nodes);
    CHECK(entry.first_bytes == first_bytes);
    CHECK(entry.busbw_gbytes_per_s == table["busbw"].as<std::vector<double>>());
    CHECK(entry.source == collected["sources"][table["src"].as<std::string>()].as<std::string>());
    REQUIRE(entry.seconds.size() == entry.busbw_gbytes_per_s.size());
    CHECK(std::is_sorted(entry.seconds.begin(), entry.seconds.end()));
    const double n = static_cast<double>(devices);
    const double last = std::ldexp(first_bytes, static_cast<int>(entry.seconds.size()) - 1);
    CHECK(entry.seconds.back() * entry.busbw_gbytes_per_s.back() * 1e9 ==
          doctest::Approx(last * 2 * (n - 1) / n));
  };
  check_table(find_device("a100-80gb")->attained_collectives, "a100_80_8gpu", 1024, 8, 1);
  check_table(find_device("a100-40gb")->attained_collectives, "a100_80_8gpu", 1024, 8, 1);
  check_table(find_device("h100")->attained_collectives, "h100_8gpu", 1024, 8, 1);
  check_table(find_device("h200")->attained_collectives, "h200_8gpu", 1024, 8, 1);
  check_table(find_device("b200")->attained_collectives, "b200_8gpu_nccl_2_27_7", 32768, 8, 1);
  check_table(find_node("p6-b200")->attained_collectives, "b200_4nodes_32gpu_efa", 32768, 32, 4);

  const auto has_source = [&](const AttainedCollective& entry) {
    const YAML::Node sources = collected["sources"];
    return std::any_of(sources.begin(), sources.end(), [&](const auto& source) {
      return source.second.template as<std::string>() == entry.source;
    });
  };
  std::size_t entries = 0;
  for (const HardwareName& preset : preset_hardware_names()) {
    CAPTURE(preset.name);
    if (preset.kind == HardwareName::Kind::cluster) continue;
    const std::vector<AttainedCollective> attained = preset.kind == HardwareName::Kind::device
                                                         ? find_device(preset.name)->attained_collectives
                                                         : find_node(preset.name)->attained_collectives;
    for (const AttainedCollective& entry : attained) {
      ++entries;
      CHECK(has_source(entry));
      CHECK(entry.assumed == entry.note.starts_with("assumed"));
    }
  }
  CHECK(entries >= 30);
}

TEST_CASE("collectives: what is wrong is told with its key") {
  const std::string device =
      "kind: device\nname: mine\nschema: zeroplan.hardware/1\ncapacity: {brochure_gb: 1}\n"
      "collectives_attained:\n";
  const auto reading = [&](const std::string& list) -> std::string {
    try {
      const Device read = read_hardware_yaml(parse_yaml(device + list, "mine.yaml")).device;
      return fmt::format("{} read", read.attained_collectives.size());
    } catch (const ConfigurationError& error) {
      return error.what();
    }
  };
  const auto says = [&](const std::string& list, const std::string& expected) {
    const std::string said = reading(list);
    CHECK_MESSAGE(said.find(expected) != said.npos, said);
  };
  CHECK(reading("  - {op: all_gather, devices: 2, first_mib: 1, busbw_gbytes_per_s: 3, source: me}\n") ==
        "1 read");
  CHECK(reading("  - {op: all_reduce, devices: 2, first_bytes: 1, busbw_gbytes_per_s: [1, 2], source: me, "
                "note: x}\n"
                "  - {op: reduce_scatter, devices: 4, nodes: 2, first_bytes: 1, busbw_gbytes_per_s: 1, "
                "source: me}\n") == "2 read");
  says("  - {op: all_red, devices: 2, first_mib: 1, busbw_gbytes_per_s: 3, source: me}\n",
       "nearest: all_reduce");
  says("  - {op: all_gather, devices: 1, first_mib: 1, busbw_gbytes_per_s: 3, source: me}\n",
       "collectives_attained[0].devices");
  says("  - {op: all_gather, first_mib: 1, busbw_gbytes_per_s: 3, source: me}\n", "devices: missing");
  says("  - {op: all_gather, devices: 2, busbw_gbytes_per_s: 3, source: me}\n", "first_bytes: missing");
  says("  - {op: all_gather, devices: 2, first_mib: 1, source: me}\n", "busbw_gbytes_per_s: missing");
  says("  - {op: all_gather, devices: 2, first_mib: 1, busbw_gbytes_per_s: [], source: me}\n",
       "a list of numbers");
  says("  - {op: all_gather, devices: 2, first_mib: 1, busbw_gbytes_per_s: [1, x], source: me}\n",
       "busbw_gbytes_per_s");
  says("  - {op: all_gather, devices: 2, first_mib: 1, busbw_gbytes_per_s: 0, source: me}\n",
       "busbw_gbytes_per_s");
  says("  - {op: all_gather, devices: 2, first_mib: 1, busbw_gbytes_per_s: 3}\n", "source: missing");
  says("  - {op: all_gather, devices: 2, nodes: 3, first_mib: 1, busbw_gbytes_per_s: 3, source: me}\n",
       "at most the 2 devices");
  says("  - {op: all_gather, devices: 2, first_mib: 1, busbw_gbytes_per_s: 3, source: me, sise: 3}\n",
       "sise");
  says("  - 3\n", "collectives_attained");
}

TEST_CASE("the first lines that find a preset say what the parser reads") {
  const std::vector<std::string> kinds{"device", "node", "cluster"};
  const auto names = preset_hardware_names();
  std::set<std::string> seen;
  for (const HardwareName& preset : names) {
    CAPTURE(preset.name);
    const YAML::Node file = shipped_file(preset.name);
    CHECK(file["name"].as<std::string>() == preset.name);
    CHECK(file["title"].as<std::string>() == preset.title);
    CHECK(file["kind"].as<std::string>() == kinds[static_cast<std::size_t>(preset.kind)]);
    CHECK(file["aliases"].as<std::vector<std::string>>() == preset.aliases);
    CHECK_MESSAGE(seen.insert(folded(preset.name)).second, "two files answer to ", preset.name);
    for (const std::string& alias : preset.aliases) {
      CHECK_MESSAGE(seen.insert(folded(alias)).second, "two files answer to ", alias);
    }
  }
}

TEST_CASE("memory of the host: MemTotal, or the control group's limit where that is lower") {
  const std::string meminfo = "MemTotal:       65812345 kB\nMemFree:         1 kB\n";
  CHECK(parse_host_memory(meminfo, "") == 65812345LL * 1024);
  CHECK(parse_host_memory(meminfo, "max\n") == 65812345LL * 1024);
  CHECK(parse_host_memory(meminfo, "2147483648\n") == 2147483648LL);
  CHECK(parse_host_memory(meminfo, "9223372036854771712\n") == 65812345LL * 1024);
  CHECK_FALSE(parse_host_memory("", "").has_value());
  CHECK_FALSE(parse_host_memory("MemTotal: many kB\n", "").has_value());
  CHECK_FALSE(parse_host_memory("MemTotal: 99999999999999999999 kB\n", "").has_value());
}
