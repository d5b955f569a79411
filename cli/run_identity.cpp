#include "cli/run_identity.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "cli/version.hpp"
#include "planner/program/compile.hpp"
#include "reports/inputs.hpp"
#include "reports/model_data.hpp"
#include "reports/writers.hpp"

namespace zeroplan::cli {

namespace {

using executor::RunIdentity;

// A rank may have its own.
constexpr std::array<std::string_view, 4> kOfOneRank{"threads", "timeout", "force", "pin"};
// Whether it is given is of all ranks; the name is not, and what is there now is written over.
constexpr std::array<std::string_view, 2> kWritten{"save", "export"};

bool is_in(const auto& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The linker's digest of the program, as hexadecimal digits; empty where it was linked without.
std::string build_number() {
  std::string number;
  const auto of_object = [](dl_phdr_info* object, std::size_t, void* result) {
    for (int i = 0; i < object->dlpi_phnum; ++i) {
      const ElfW(Phdr)& segment = object->dlpi_phdr[i];
      if (segment.p_type != PT_NOTE) continue;
      // NOLINTNEXTLINE(performance-no-int-to-ptr): the loader gives the address as a number
      const auto* note = reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr);
      const char* end = note + segment.p_memsz;
      while (note + sizeof(ElfW(Nhdr)) <= end) {
        ElfW(Nhdr) header;
        std::memcpy(&header, note, sizeof header);
        const auto padded = [](std::size_t bytes) { return (bytes + 3) / 4 * 4; };
        const char* name = note + sizeof header;
        const char* description = name + padded(header.n_namesz);
        if (header.n_type == NT_GNU_BUILD_ID && std::string_view(name, 3) == "GNU") {
          for (std::size_t byte = 0; byte < header.n_descsz; ++byte) {
            *static_cast<std::string*>(result) +=
                fmt::format("{:02x}", static_cast<unsigned char>(description[byte]));
          }
          break;
        }
        note = description + padded(header.n_descsz);
      }
    }
    return 1;  // the program comes first
  };
  ::dl_iterate_phdr(of_object, &number);
  return number;
}

std::string value_of(const std::string& key, const std::string& text) {
  if (is_in(kWritten, key)) return "given";
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && stop == text.data() + text.size()) return fmt::format("{}", number);
  std::string digest = executor::file_digest(text);
  return digest.empty() ? text : "file " + digest;
}

std::string text_of(const reports::Data& data) {
  std::string text = reports::write_json(data, true);
  text.pop_back();  // the end of the line
  return text;
}

}  // namespace

RunIdentity run_identity(const Request& request, const executor::Launch& launch) {
  RunIdentity identity;
  if (launch.kind == executor::Launch::Kind::threads) return identity;  // one process is of one mind
  if (!launch.job.empty()) identity.push_back({"job", launch.job});
  identity.push_back({"build of zeroplan", fmt::format("{} {}", version(), build_number())});
  if (!request.words.empty()) identity.push_back({"command", request.words.front()});
  for (const auto& [key, text] : request.own) {
    if (!is_in(kOfOneRank, key)) identity.push_back({"--" + key, value_of(key, text)});
  }
  return identity;
}

RunIdentity run_identity(const Request& request, const executor::Launch& launch, const describe::Model& model,
                         const describe::Plan& plan) {
  RunIdentity identity = run_identity(request, launch);
  if (identity.empty()) return identity;
  const reports::Data fields = reports::plan_data(plan);
  for (const reports::DataEntry& entry : *fields.as<reports::Data::Map>()) {
    identity.push_back({entry.key, text_of(entry.value)});
  }
  identity.push_back({"model", executor::digest_of(text_of(reports::model_data(model, plan.sequence)))});
  identity.push_back({"program", executor::digest_of(program::compile(model, plan, {}))});
  return identity;
}

}  // namespace zeroplan::cli
