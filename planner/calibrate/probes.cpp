#include "planner/calibrate/probes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "planner/describe/model/model.hpp"
#include "planner/instructions/table.hpp"
#include "planner/predict/measured_kernels.hpp"
#include "planner/program/builder.hpp"
#include "planner/program/compile.hpp"
#include "planner/program/zero_policy.hpp"

namespace zeroplan::calibrate {
namespace {

using describe::KernelKind;
using describe::KernelSizes;
using describe::OperandTypes;
using program::BufferId;
using program::Category;
using program::DataType;
using program::Group;
using program::Instruction;
using program::Op;
using program::Operand;
using program::Phase;

constexpr Bytes kAlignment = 64;
constexpr Bytes kFirstVector = 4 * kKiB;
constexpr int kDoublings = 14, kQuickDoublings = 8;         // 64 MiB, 1 MiB
constexpr int kGpuDoublings = 18, kQuickGpuDoublings = 14;  // 1 GiB, 64 MiB

// ---- models ----

// Beside plain ZeRO-2.
enum class Habit : std::uint8_t {
  none,
  spares_memory,  // the optimizer is offloaded, layers are recomputed
  drops_out,
};

struct ModelProbe {
  std::string_view model;
  std::int64_t sequence, micro_batch;
  Habit habit;
};

// Two blocks, one of them also with dropout, so that between them every kernel is used, each small and large. The large
// ones pass the caches.
constexpr std::array<ModelProbe, 6> kModels{
    {{"layers=1,hidden=256,heads=4,vocab=1024", 128, 1, Habit::none},
     {"layers=1,hidden=256,heads=4,kv_heads=2,ffn=704,vocab=1024,gated=true", 128, 1, Habit::spares_memory},
     {"layers=1,hidden=256,heads=4,vocab=1024", 128, 1, Habit::drops_out},
     {"layers=1,hidden=512,heads=8,vocab=4096", 512, 2, Habit::none},
     {"layers=1,hidden=512,heads=8,kv_heads=4,ffn=1408,vocab=4096,gated=true", 512, 2, Habit::spares_memory},
     {"layers=1,hidden=512,heads=8,vocab=4096", 512, 2, Habit::drops_out}}};
constexpr std::array<ModelProbe, 6> kGpuModels{
    {{"layers=1,hidden=1024,heads=16,vocab=16384", 1024, 1, Habit::none},
     {"layers=1,hidden=1024,heads=16,kv_heads=8,ffn=2816,vocab=16384,gated=true", 1024, 1,
      Habit::spares_memory},
     {"layers=1,hidden=1024,heads=16,vocab=16384", 1024, 1, Habit::drops_out},
     {"layers=1,hidden=4096,heads=32,vocab=32768", 2048, 2, Habit::none},
     {"layers=1,hidden=4096,heads=32,kv_heads=8,ffn=11264,vocab=32768,gated=true", 2048, 2,
      Habit::spares_memory},
     {"layers=1,hidden=4096,heads=32,vocab=32768", 2048, 2, Habit::drops_out}}};
constexpr std::size_t kQuickModels = 3;

Probe model_probe(const ModelProbe& small, describe::Precision precision, const Group& ranks) {
  const describe::Model model = describe::read_model_spelling(small.model);
  describe::PlanOptions options;
  options.gpus = ranks.size;
  options.dtype = precision;
  options.seq = small.sequence;
  options.micro_batch = small.micro_batch;
  options.zero = 2;
  options.grad_accum = 2;
  if (small.habit != Habit::none) options.attention = describe::AttentionKernel::materialized;
  if (small.habit == Habit::spares_memory) {
    options.offload = describe::Offload::optimizer;
    options.recompute = describe::Recompute::full;
  }
  options.dropout = small.habit == Habit::drops_out;
  const describe::Plan plan = describe::resolve_plan(options, model, "cpu").plan;
  Probe probe;
  probe.what = fmt::format("{} kernels of {}{}", describe::name_of(precision), small.model,
                           plan.dropout ? " with dropout" : "");
  probe.program = program::compile(model, plan, {.data_parallel = ranks.rank, .tensor_parallel = 0});
  probe.sequence = plan.sequence;
  probe.micro_batch = plan.micro_batch;
  probe.gradient_accumulation = plan.gradient_accumulation;
  probe.vocabulary = model.vocabulary;
  return probe;
}

// ---- grids ----

using Sizes = std::array<std::int64_t, 4>;  // dims of an instruction

// Widths are no powers of two: rows that are so many bytes apart share lines of the caches, as those of few
// models do.
std::vector<Sizes> product_sizes(ProbeSizes chosen) {
  std::vector<std::int64_t> rows{64, 256, 1024}, widths{144, 576, 2304};
  if (chosen.of_gpu) {
    rows = {512, 2048, 8192};
    widths = {1152, 4608, 13824};
  }
  if (chosen.quick) {
    rows.pop_back();
    widths.pop_back();
  }
  std::vector<Sizes> sizes;
  for (const std::int64_t m : rows) {
    for (const std::int64_t n : widths) {
      for (const std::int64_t k : widths) sizes.push_back({m, n, k, 0});
    }
  }
  return sizes;
}

std::vector<Sizes> attention_sizes(ProbeSizes chosen) {
  const std::int64_t width = chosen.of_gpu ? 2048 : 512;
  const std::int64_t shortest = chosen.of_gpu ? 256 : 64;
  const std::int64_t tokens = shortest * (chosen.quick ? 4 : 16);
  std::vector<Sizes> sizes;
  for (std::int64_t sequence = shortest; sequence <= tokens; sequence *= 4) {
    for (const std::int64_t head_dim : {64, 128}) {
      sizes.push_back({tokens / sequence, sequence, width / head_dim, head_dim});
    }
  }
  return sizes;
}

// A bias is a small part of a product: what was measured with one stands for both.
KernelKind without_bias(KernelKind kind) {
  if (!program::is_linear_product(kind.op)) return kind;
  const auto& operands = program::row_of(kind.op).operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].is_optional) kind.types |= describe::kAbsentType << (describe::kBitsPerType * i);
  }
  return kind;
}

// Everything that a probe touches, one block for each type: each piece is memory that no other has, so a
// piece is as cold when its turn comes again as a layer's weights are in a step.
class Blocks {
 public:
  explicit Blocks(program::StepProgram& program) : program_(program), builder_(program, kAlignment) {}

  Operand piece(DataType type, Elements elements) {
    const auto found = blocks_.find(type);
    BufferId block = program::kNoBuffer;
    if (found == blocks_.end()) {
      block = builder_.buffer("calibration", type, Category::workspace, 1);
      blocks_.emplace(type, block);
    } else {
      block = found->second;
    }
    Elements& used = used_[type];
    const BufferId view = builder_.view("piece", block, used, elements);
    used += round_up(elements, kAlignment);
    return program::at(view);
  }

  // Once all pieces are there: what comes before the instructions. Their memory and the scalars of a step;
  // then, each time, numbers as of weights, as processors are faster with zeros.
  std::vector<Instruction> beginning() {
    program::StepProgram only_code;
    program::Builder code(only_code, kAlignment);
    code.phase(Phase::setup);
    for (const auto& [type, block] : blocks_) {
      program::Buffer& buffer = program_.buffers[block];
      buffer.elements = std::max(used_[type], kDrawn);
      buffer.bytes = buffer.elements * program::bytes_of(type);
      code.acquire(program::at(block));
    }
    code.acquire(
        program::at(builder_.buffer("scalars", DataType::fp32, Category::workspace, program::kScalars)));
    code.phase(Phase::forward);
    for (const auto& [type, block] : blocks_) {
      if (type == DataType::int32 || type == DataType::uint8) continue;
      draw(block);
      const Elements elements = program_.buffers[block].elements;
      for (Elements filled = kDrawn; filled < elements; filled *= 2) {
        const Elements more = std::min(filled, elements - filled);
        code.emit(Op::copy, {more},
                  {program::at(builder_.view("numbers", block, 0, more)),
                   program::at(builder_.view("numbers", block, filled, more))});
      }
    }
    return only_code.code;
  }

  program::Builder& builder() { return builder_; }

 private:
  // The first numbers of a block are drawn as a tensor's are.
  void draw(BufferId block) {
    program::UnitPlacement unit;
    unit.parameter = block;
    unit.elements = unit.partition = unit.owned = program_.buffers[block].elements;
    program_.units.push_back(unit);
    program::TensorPlacement tensor;
    tensor.name = "calibration.weight";
    tensor.unit = program_.units.size() - 1;
    tensor.outputs = kDrawn;
    tensor.inputs = 1;
    program_.tensors.push_back(tensor);
  }

  static constexpr Elements kDrawn = Elements{1} << 16;

  program::StepProgram& program_;
  program::Builder builder_;
  std::map<DataType, BufferId> blocks_;
  std::map<DataType, Elements> used_;
};

program::StepProgram empty_program(const Group& ranks) {
  program::StepProgram program;
  program.ranks = ranks.size;
  if (ranks.size > 1) program.groups.push_back(ranks);
  program.layers = 1;
  program.tokens_per_step = ranks.size;
  return program;
}

void put_beginning(program::StepProgram& program, Blocks& blocks) {
  const std::vector<Instruction> beginning = blocks.beginning();
  program.code.insert(program.code.begin(), beginning.begin(), beginning.end());
}

Probe grid_probe(const Instruction& like, OperandTypes types, const std::vector<Sizes>& grid,
                 const Group& ranks) {
  Probe probe;
  probe.is_grid = true;
  probe.what = fmt::format("{} over sizes", program::name_of(like.op));
  probe.program = empty_program(ranks);
  Blocks blocks(probe.program);
  for (const Sizes& sizes : grid) {
    Instruction instruction = like;
    instruction.dims = sizes;
    if (describe::sizes_of(like.op) == KernelSizes::attention) {
      instruction.extra = narrow<std::uint32_t>(sizes[2]);  // as many key-value heads
    }
    for (std::size_t i = 0; i < program::kMaxOperands; ++i) {
      const OperandTypes type = describe::type_at(types, i);
      instruction.operands[i] = {};
      if (type == describe::kAbsentType) continue;
      instruction.operands[i] =
          blocks.piece(static_cast<DataType>(type),
                       program::row_of(like.op).operands[i].extent(program::shape_of(instruction)));
    }
    probe.program.code.push_back(instruction);
  }
  put_beginning(probe.program, blocks);
  return probe;
}

}  // namespace

std::vector<Probe> kernel_probes(describe::Precision precision, const Group& ranks, ProbeSizes chosen) {
  std::vector<Probe> probes;
  const auto& models = chosen.of_gpu ? kGpuModels : kModels;
  const std::size_t count = chosen.quick ? kQuickModels : models.size();
  for (std::size_t i = 0; i < count; ++i) probes.push_back(model_probe(models.at(i), precision, ranks));
  std::set<KernelKind> seen;
  std::vector<Probe> grids;
  for (const Probe& probe : probes) {
    for (const Instruction& instruction : probe.program.code) {
      const KernelSizes sizes = describe::sizes_of(instruction.op);
      if (sizes == KernelSizes::streaming) continue;
      const KernelKind kind = predict::kind_of(probe.program, instruction);
      if (!seen.insert(without_bias(kind)).second) continue;
      grids.push_back(
          grid_probe(instruction, kind.types,
                     sizes == KernelSizes::product ? product_sizes(chosen) : attention_sizes(chosen), ranks));
      grids.back().what = fmt::format("{} {}", describe::name_of(precision), grids.back().what);
    }
  }
  std::move(grids.begin(), grids.end(), std::back_inserter(probes));
  return probes;
}

Probe collective_probe(describe::Precision precision, const Group& ranks, ProbeSizes chosen) {
  Probe probe;
  probe.what = fmt::format("{} collectives", describe::name_of(precision));
  probe.program = empty_program(ranks);
  Blocks blocks(probe.program);
  const DataType type = program::compute_type(precision);
  std::vector<Operand> vectors;
  std::vector<Elements> elements;
  const int doublings = chosen.of_gpu ? (chosen.quick ? kQuickGpuDoublings : kGpuDoublings)
                                      : (chosen.quick ? kQuickDoublings : kDoublings);
  for (int i = 0; i <= doublings; ++i) {
    elements.push_back(round_up((kFirstVector << i) / program::bytes_of(type), ranks.size));
    vectors.push_back(blocks.piece(type, elements.back()));
  }
  const program::GroupId group = probe.program.find_group(program::GroupKind::data_parallel);
  for (const Op op : {Op::all_reduce, Op::reduce_scatter, Op::all_gather}) {
    for (std::size_t i = 0; i < vectors.size(); ++i) {
      program::Builder& builder = blocks.builder();
      if (op != Op::all_gather) {
        builder.collective(op, group, elements[i], {vectors[i]});
        continue;
      }
      const Elements partition = elements[i] / ranks.size;
      const BufferId own = builder.view("own", vectors[i].buffer, ranks.rank * partition, partition);
      builder.collective(op, group, elements[i], {program::at(own), vectors[i]});
    }
  }
  put_beginning(probe.program, blocks);
  return probe;
}

Probe skew_probe(const Group& ranks, ProbeSizes chosen) {
  const std::int64_t scale = chosen.of_gpu ? 4 : 1;
  const std::int64_t width = scale * (chosen.quick ? 288 : 2304);
  const std::int64_t rows = scale * (chosen.quick ? 128 : 1024);
  const int times = chosen.quick ? 8 : 12;
  Probe probe;
  probe.what = "waiting for each other";
  probe.program = empty_program(ranks);
  Blocks blocks(probe.program);
  const Operand x = blocks.piece(DataType::fp32, rows * width);
  const Operand weight = blocks.piece(DataType::fp32, width * width);
  const Operand y = blocks.piece(DataType::fp32, rows * width);
  const Operand small = blocks.piece(DataType::fp32, round_up(kAlignment, ranks.size));
  const auto meet = [&] {
    blocks.builder().collective(Op::all_reduce, probe.program.find_group(program::GroupKind::data_parallel),
                                round_up(kAlignment, ranks.size), {small});
  };
  meet();
  for (int i = 0; i < times; ++i) {
    blocks.builder().emit(Op::matmul, {rows, width, width}, {x, weight, {}, y});
    meet();
  }
  put_beginning(probe.program, blocks);
  return probe;
}

}  // namespace zeroplan::calibrate
