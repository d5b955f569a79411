#include "reports/program_terms.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "planner/predict/repetition.hpp"
#include "reports/model_data.hpp"
#include "reports/numbers.hpp"
#include "reports/report.hpp"

namespace zeroplan::reports {
namespace {

using program::Buffer;
using program::Instruction;
using program::Op;
using program::Phase;
using program::StepProgram;

// "48 x 30,740,800 x 2 B", or with the allocated size where alignment made it larger.
std::string buffer_arithmetic(const Buffer& buffer, std::int64_t instances) {
  const Bytes type = program::bytes_of(buffer.type);
  if (buffer.bytes == buffer.elements * type) {
    return fmt::format("{} x {} x {} B", instances, thousands(buffer.elements), type);
  }
  return fmt::format("{} x {} B ({} x {} B, aligned)", instances, thousands(buffer.bytes),
                     thousands(buffer.elements), type);
}

Term acquired_term(const Instruction& instruction, const Buffer& buffer) {
  const std::int64_t instances = program::instances_taken(instruction.op, buffer.instances);
  return {std::string(buffer.name), buffer_arithmetic(buffer, instances),
          static_cast<double>(instances * buffer.bytes)};
}

// Instructions that are alike but for how often they run.
struct Repeated {
  std::string name;
  std::string each;  // arithmetic of one run
  double value = 0;  // of one run
  double times = 0;
};

void add_repeated(std::vector<Repeated>& list, Repeated one) {
  for (Repeated& other : list) {
    if (other.name != one.name || other.each != one.each) continue;
    other.times += one.times;
    return;
  }
  list.push_back(std::move(one));
}

std::vector<Term> to_terms(const std::vector<Repeated>& list) {
  std::vector<Term> terms;
  terms.reserve(list.size());
  for (const Repeated& one : list) {
    terms.push_back({one.name, fmt::format("{:.0f} x {}", one.times, one.each), one.times * one.value});
  }
  return terms;
}

struct Share {
  std::string text;
  double value = 0;
};

// How much of the vector one rank of n sends: a ring (docs/equations.md, "Collectives").
Share ring_share(Op op, std::int64_t n) {
  const program::Ring ring = program::row_of(op).ring;
  const std::string passes = ring.passes == 1 ? "" : fmt::format("{} x ", ring.passes);
  return {passes + (ring.divides ? fmt::format("{}/{}", n - 1, n) : "1"),
          program::sent_over_ring(op, 1, static_cast<double>(n))};
}

}  // namespace

std::vector<Term> buffer_terms(const predict::Prediction& prediction,
                               const std::function<bool(const Buffer&)>& wanted) {
  std::vector<Term> terms;
  for (const predict::LiveBuffer& live : predict::live_at_peak(prediction.program(), prediction.memory())) {
    const Buffer& buffer = prediction.program().buffers[live.buffer];
    if (!wanted(buffer)) continue;
    terms.push_back({std::string(buffer.name), buffer_arithmetic(buffer, live.instances),
                     static_cast<double>(live.bytes)});
  }
  return terms;
}

std::vector<Term> model_state_terms(const StepProgram& program) {
  std::vector<Term> terms;
  for (const Instruction& instruction : program.code) {
    // What is acquired in the setup is held to the end.
    if (instruction.op == Op::phase && instruction.dims[0] != static_cast<std::int64_t>(Phase::setup)) break;
    if (!program::is_acquire(instruction.op)) continue;
    const Buffer& buffer = program.buffers[instruction.operands[0].buffer];
    const bool is_state = buffer.category == program::Category::parameter ||
                          buffer.category == program::Category::gradient ||
                          buffer.category == program::Category::optimizer_state;
    if (!is_state || buffer.space != program::Space::device) continue;
    terms.push_back(acquired_term(instruction, buffer));
  }
  return terms;
}

std::vector<Term> host_buffer_terms(const predict::Prediction& prediction) {
  std::vector<Term> terms;
  for (std::size_t i = 0; i < program::kCategories; ++i) {
    const Bytes bytes = prediction.memory().host_at_peak[i];
    if (bytes == 0) continue;
    const auto category = static_cast<program::Category>(i);
    std::string arithmetic;
    for (const Buffer& buffer : prediction.program().buffers) {
      if (buffer.space != program::Space::host || buffer.category != category ||
          buffer.parent != program::kNoBuffer)
        continue;
      arithmetic += (arithmetic.empty() ? "" : " + ") + buffer_arithmetic(buffer, buffer.instances);
    }
    terms.push_back({std::string(program::name_of(category)), arithmetic, static_cast<double>(bytes)});
  }
  return terms;
}

std::vector<Term> overhead_terms(const predict::Prediction& prediction) {
  std::vector<Term> terms;
  for (const predict::OverheadTerm& term : prediction.overheads) {
    terms.push_back({"overhead: " + term.name, "", static_cast<double>(term.bytes), term.source});
  }
  return terms;
}

std::vector<Term> traffic_terms(const StepProgram& program, program::GroupKind family) {
  std::vector<Repeated> list;
  predict::for_each_repeated(program, [&](const Instruction& instruction, Phase phase, double times) {
    if (!program::is_collective(instruction.op) || family_of(program.group_of(instruction).kind) != family)
      return;
    const Buffer& buffer = predict::whole_buffer(program, instruction);
    const Share share = ring_share(instruction.op, program.group_of(instruction).size);
    const Bytes type = program::bytes_of(buffer.type);
    add_repeated(list, {fmt::format("{} of {}, {}", program::name_of(instruction.op), buffer.name,
                                    program::name_of(phase)),
                        fmt::format("{} x {} B x {}", thousands(instruction.dims[0]), type, share.text),
                        static_cast<double>(instruction.dims[0] * type) * share.value, times});
  });
  return to_terms(list);
}

std::vector<Term> psi_terms(const predict::Prediction& prediction) {
  const StepProgram& program = prediction.program();
  const double psi = static_cast<double>(program.parameters) /
                     static_cast<double>(program.group(program::GroupKind::tensor_parallel).size);
  std::vector<Repeated> list;
  if (psi == 0) return {};
  predict::for_each_repeated(program, [&](const Instruction& instruction, Phase phase, double times) {
    if (!program::is_collective(instruction.op) ||
        family_of(program.group_of(instruction).kind) != program::GroupKind::data_parallel) {
      return;
    }
    const int weight = program::row_of(instruction.op).ring.passes;
    add_repeated(
        list,
        {fmt::format("{} of {}, {}", program::name_of(instruction.op),
                     predict::whole_buffer(program, instruction).name, program::name_of(phase)),
         fmt::format("{} x {} / {}", weight, thousands(instruction.dims[0]), thousands(std::llround(psi))),
         weight * static_cast<double>(instruction.dims[0]) / psi, times});
  });
  return to_terms(list);
}

std::vector<Term> copy_terms(const StepProgram& program, program::Class direction) {
  std::vector<Repeated> list;
  predict::for_each_repeated(program, [&](const Instruction& instruction, Phase phase, double times) {
    if (program::class_of(instruction.op) != direction) return;
    const Buffer& buffer = program.buffers[instruction.operands[0].buffer];
    const Bytes type = program::bytes_of(buffer.type);
    add_repeated(list, {fmt::format("{} of {}, {}", program::name_of(instruction.op), buffer.name,
                                    program::name_of(phase)),
                        fmt::format("{} x {} B", thousands(instruction.dims[0]), type),
                        static_cast<double>(instruction.dims[0] * type), times});
  });
  return to_terms(list);
}

std::string instruction_name(const StepProgram& program, const Instruction& instruction, Phase phase) {
  std::string op(program::name_of(instruction.op));
  if (program::is_linear_product(instruction.op)) {
    const auto [m, n, k, unused] = instruction.dims;
    return fmt::format("{} {} x {} x {}", op, m, n, k);
  }
  if (!program::is_collective(instruction.op) && !program::is_host_copy(instruction.op)) return op;
  const Buffer& buffer = program::is_collective(instruction.op)
                             ? predict::whole_buffer(program, instruction)
                             : program.buffers[instruction.operands[0].buffer];
  return fmt::format("{} of {}, {}", op, buffer.name, program::name_of(phase));
}

std::vector<Term> flops_terms(const StepProgram& program, bool with_recomputed) {
  std::vector<Repeated> list;
  predict::for_each_repeated(program, [&](const Instruction& instruction, Phase, double times) {
    const double flops = with_recomputed ? predict::executed_flops(program, instruction)
                                         : predict::needed_flops(program, instruction);
    const bool recomputed = (instruction.flags & program::kRecomputed) != 0;
    if (flops == 0 || (recomputed && !with_recomputed)) return;
    const std::string name =
        std::string(program::name_of(instruction.op)) + (recomputed ? ", recomputed" : "");
    if (program::is_linear_product(instruction.op)) {
      const auto [m, n, k, unused] = instruction.dims;
      add_repeated(list, {name, fmt::format("2 x {} x {} x {}", m, n, k), flops, times});
      return;
    }
    const auto [sequences, sequence, heads, head_dim] = instruction.dims;
    const double product = 2.0 * static_cast<double>(sequences * sequence) * static_cast<double>(sequence) *
                           static_cast<double>(heads * head_dim);
    const double share = predict::visible_share(program, instruction);
    const double products = flops / product;
    std::string arithmetic =
        fmt::format("2 x {} x {} x {} x {} x {}", sequences, sequence, sequence, heads, head_dim);
    if (products == std::round(products)) {
      arithmetic = fmt::format("{:.0f} x {}", products, arithmetic);
    } else {
      arithmetic = fmt::format("{:.0f} x {} x {:.6g} in windows", products / share, arithmetic, share);
    }
    add_repeated(list, {name, std::move(arithmetic), flops, times});
  });
  return to_terms(list);
}

std::vector<Term> parameter_terms(const describe::Model& model, std::int64_t sequence) {
  if (!model.is_shape()) {
    return {{"parameters", "as given", static_cast<double>(model.only_parameters)}};
  }
  std::vector<Term> terms;
  for (const describe::ParameterGroup& group : describe::parameter_groups(model, sequence)) {
    terms.push_back({std::string(name_of(group.kind)),
                     fmt::format("{} x {}", group.layers, thousands(group.elements_per_layer())),
                     static_cast<double>(group.layers * group.elements_per_layer())});
  }
  return terms;
}

std::vector<Term> active_parameter_terms(const describe::Model& model, std::int64_t sequence) {
  std::vector<Term> terms = parameter_terms(model, sequence);
  const Elements unused =
      describe::count_parameters(model, sequence) - describe::count_active_parameters(model, sequence);
  if (unused != 0) {
    terms.push_back({"not used by one token", "experts beyond the top_k, and what is marked as inactive",
                     -static_cast<double>(unused)});
  }
  return terms;
}

}  // namespace zeroplan::reports
