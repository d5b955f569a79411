#include "reports/program_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>

#include "planner/instructions/table.hpp"
#include "reports/inputs.hpp"
#include "reports/numbers.hpp"
#include "reports/writers.hpp"

namespace zeroplan::reports {
namespace {

using program::Instruction;
using program::Op;
using program::Order;
using program::Role;
using program::StepProgram;

std::string_view name_of(Role role) {
  switch (role) {
    case Role::in:
      return "in";
    case Role::out:
      return "out";
    case Role::io:
      return "in and out";
    case Role::none:
      break;
  }
  return "";
}

class Listing {
 public:
  explicit Listing(const StepProgram& program) : program_(program), signallers_(program.order.events.size()) {
    for (std::size_t i = 0; i < program.code.size(); ++i) {
      const std::uint16_t event = program.order.mark(i).signals;
      if (event != Order::kNoEvent) signallers_[event].push_back(i);
    }
  }

  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    std::size_t depth = 0, section = 0;
    for (std::size_t i = 0; i < program_.code.size(); ++i) {
      const Instruction& instruction = program_.code[i];
      for (; section < program_.sections.size() && program_.sections[section].begin == i; ++section) {
        add(lines, std::string(6 + 2 * depth, ' '),
            fmt::format("{}:", program::name_of(program_.sections[section].kind)));
      }
      if (instruction.op == Op::end_repeat) {
        --depth;
        continue;
      }
      const std::string margin = fmt::format("{:>4}  {}", i, std::string(2 * depth, ' '));
      add(lines, margin, text_of(instruction));
      for (const Order::Wait& wait : program_.order.waits_of(i)) {
        add(lines, std::string(margin.size() + 4, ' '), "waits for " + wait_text(wait));
      }
      if (instruction.op == Op::repeat) ++depth;
    }
    return lines;
  }

  Data code() const {
    Data list = Data::list();
    for (std::size_t i = 0; i < program_.code.size(); ++i) list.add(data_of(i));
    return list;
  }

  Data buffers() const {
    Data list = Data::list();
    for (const program::Buffer& buffer : program_.buffers) {
      Data data = Data::map()
                      .set("name", buffer.name)
                      .set("type", program::name_of(buffer.type))
                      .set("category", program::name_of(buffer.category))
                      .set("space", buffer.space == program::Space::host ? "host" : "device")
                      .set("instances", buffer.instances)
                      .set("first_layer", std::int64_t{buffer.first_layer})
                      .set("elements", buffer.elements)
                      .set("bytes", buffer.bytes);
      const bool is_view = buffer.parent != program::kNoBuffer;
      data.set("view_of", is_view ? Data(std::int64_t{buffer.parent}) : Data());
      data.set("offset_elements", buffer.offset);
      list.add(std::move(data));
    }
    return list;
  }

 private:
  // In lines that fit, the further ones further in.
  static void add(std::vector<std::string>& lines, const std::string& margin, const std::string& text) {
    constexpr std::size_t kWidth = 98;
    const std::vector<std::string> parts =
        wrapped_lines(text, kWidth - margin.size() - (margin.size() + text.size() > kWidth ? 4 : 0));
    for (std::size_t p = 0; p < parts.size(); ++p) {
      lines.push_back(p == 0 ? margin + parts[p] : std::string(margin.size() + 4, ' ') + parts[p]);
    }
  }

  std::string operand_text(const program::Operand& operand) const {
    const program::Buffer& buffer = program_.buffers[operand.buffer];
    if (buffer.instances == 1) return std::string(buffer.name);
    if (operand.layer_offset == 0) return fmt::format("{}[layer]", buffer.name);
    return fmt::format("{}[layer {} {}]", buffer.name, operand.layer_offset > 0 ? '+' : '-',
                       std::abs(operand.layer_offset));
  }

  std::string text_of(const Instruction& instruction) const {
    const program::InstructionRow& row = program::row_of(instruction.op);
    if (instruction.op == Op::phase) {
      return fmt::format("phase {}", program::name_of(static_cast<program::Phase>(instruction.dims[0])));
    }
    if (instruction.op == Op::repeat) {
      const auto [count, first, step, end] = instruction.dims;
      if (step == 0) return fmt::format("repeat {} times", count);
      return fmt::format("repeat {} times with layer + {}{}", count, first,
                         step == 1    ? ", then the next"
                         : step == -1 ? ", then the one before"
                                      : fmt::format(", then {:+}", step));
    }
    std::string text(row.name);
    if (const auto group = program_.kind_of(instruction)) {
      text += fmt::format(" over {} ranks", program::name_of(*group));
    }
    if (program::is_executed(instruction.op))
      text += fmt::format(" on {}", program::name_of(instruction.stream));
    if ((instruction.flags & program::kRecomputed) != 0) text += ", again";
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < program::kMaxOperands; ++i) {
      const program::Operand& operand = instruction.operands[i];
      if (operand.buffer == program::kNoBuffer) continue;
      const bool is_memory = program::is_memory(instruction.op);
      parts.push_back(is_memory ? operand_text(operand)
                                : fmt::format("{} {}", name_of(row.operands[i].role), operand_text(operand)));
    }
    std::vector<std::string> dims;
    for (std::size_t d = 0; d < row.dims.size(); ++d) {
      if (!row.dims[d].empty())
        dims.push_back(fmt::format("{} {}", row.dims[d], thousands(instruction.dims[d])));
    }
    if (!parts.empty()) text += fmt::format(": {}", fmt::join(parts, ", "));
    if (!dims.empty()) text += fmt::format(" ({})", fmt::join(dims, ", "));
    return text;
  }

  std::string wait_text(const Order::Wait& wait) const {
    const std::vector<std::size_t>& signallers = signallers_[wait.event];
    const Instruction& instruction = program_.code[signallers.front()];
    const std::string which =
        fmt::format("{} on {} ({})", program::name_of(instruction.op), program::name_of(instruction.stream),
                    fmt::join(signallers, " or "));
    if (wait.age == 0) return "the last " + which;
    return fmt::format("the {} of {}",
                       wait.age == 1 ? "one before the last" : fmt::format("{}th before the last", wait.age),
                       which);
  }

  Data data_of(std::size_t index) const {
    const Instruction& instruction = program_.code[index];
    const program::InstructionRow& row = program::row_of(instruction.op);
    Data dims = Data::map();
    for (std::size_t d = 0; d < row.dims.size(); ++d) {
      if (!row.dims[d].empty()) dims.set(std::string(row.dims[d]), instruction.dims[d]);
    }
    Data operands = Data::list();
    for (std::size_t i = 0; i < program::kMaxOperands; ++i) {
      const program::Operand& operand = instruction.operands[i];
      if (operand.buffer == program::kNoBuffer) continue;
      operands.add(Data::map()
                       .set("name", row.operands[i].name)
                       .set("role", name_of(row.operands[i].role))
                       .set("buffer", std::int64_t{operand.buffer})
                       .set("layer_offset", std::int64_t{operand.layer_offset}));
    }
    Data waits = Data::list();
    for (const Order::Wait& wait : program_.order.waits_of(index)) {
      Data signallers = Data::list();
      for (const std::size_t s : signallers_[wait.event]) signallers.add(static_cast<std::int64_t>(s));
      waits.add(Data::map().set("instructions", std::move(signallers)).set("age", std::int64_t{wait.age}));
    }
    const auto group = program_.kind_of(instruction);
    return Data::map()
        .set("index", static_cast<std::int64_t>(index))
        .set("instruction", row.name)
        .set("group", group ? program::name_of(*group) : "none")
        .set("stream", program::name_of(instruction.stream))
        .set("recomputed", (instruction.flags & program::kRecomputed) != 0)
        .set("dims", std::move(dims))
        .set("operands", std::move(operands))
        .set("waits", std::move(waits));
  }

  const StepProgram& program_;
  std::vector<std::vector<std::size_t>> signallers_;  // by event
};

}  // namespace

Report program_report(const FitAnswer& answer) {
  const StepProgram& program = answer.prediction.program();
  const Listing listing(program);
  Report report;
  add_inputs(report.blocks, answer.model, answer.resolved);
  report.blocks.emplace_back(
      Paragraph{fmt::format("What one rank does in a step, {} instructions, as the planner reads it and the "
                            "executor runs it. Each is one of "
                            "planner/instructions/table.hpp; `layer` counts in the repeats around it, and a "
                            "buffer with fewer instances than "
                            "layers is a ring of slots.",
                            program.code.size())});
  report.blocks.emplace_back(Lines{listing.lines()});
  report.data = Data::map()
                    .set("schema", "zeroplan.program/1")
                    .set("version", answer.version)
                    .set("inputs", inputs_data(answer.model, answer.resolved))
                    .set("buffers", listing.buffers())
                    .set("code", listing.code());
  report.rows = "code";
  return report;
}

}  // namespace zeroplan::reports
