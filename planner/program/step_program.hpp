#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/instructions/instruction.hpp"
#include "planner/instructions/model_constants.hpp"
#include "planner/program/groups.hpp"
#include "planner/units.hpp"

// Everything one rank does in one optimizer step, as plain data. The planner reads it (planner/predict) and
// an executor runs it; there is no second description of a step anywhere.
//
// A program is a table of buffers and a tree of code. The tree is stored in prefix order: `repeat ...
// end_repeat` and `phase` are instructions among the others, so reading is one scan and a program's length
// does not grow with the depth of the model. While code runs there are two registers: `layer`, which a repeat over layers
// moves, and `iteration`, which is the index of the innermost other repeat. An operand means the instance of its buffer that
// belongs to them.
namespace zeroplan::program {

// What a buffer is for; the lines of every memory report.
enum class Category : std::uint8_t {
  parameter,        // weights in the type the model computes in, or a partition of them
  gradient,         // accumulated gradients, or a partition of them
  optimizer_state,  // fp32 master weights, momentum, variance ...
  activation,       // kept from forward for backward, and the tensors flowing between kernels
  checkpoint,       // a block's input kept under full recomputation
  gathered,         // ZeRO-3: a layer's whole weights while it is computed
  bucket,     // whole gradients on their way to a partition; constant-size fp32 buffers of the step (C_B)
  logits,     // tokens x vocabulary: fp32 logits and their gradient
  workspace,  // scratch of kernels, tokens, scalars
};
inline constexpr std::size_t kCategories = 9;
std::string_view name_of(Category category);

// A named piece of memory with `instances` equal parts (one per layer, or a ring). They may be `slots` sets, one for each
// micro-batch in flight: then iteration i has set i mod slots. Within a set of n, the instance of layer l is
// (l - first_layer) mod n. A view (parent != kNoBuffer) is a part of its parent: same
// instance, starting `offset` elements in; it is never acquired itself.
struct Buffer {
  std::string_view name;  // static text
  DataType type = DataType::fp32;
  Category category = Category::workspace;
  Space space = Space::device;
  BufferId parent = kNoBuffer;
  std::int32_t first_layer = 0;
  std::int64_t instances = 1;  // of all sets
  std::int64_t slots = 1;
  Elements elements = 0;  // of one instance, partition padding included
  Elements offset = 0;    // views: first element inside the parent's instance
  Bytes bytes = 0;  // of one instance as allocated: elements x type, rounded up to the engine's alignment
  // The engine that the plan names holds it, and no instruction of this program uses it: it counts in that
  // engine's memory, and not in what a run of the program writes.
  bool reserved = false;

  // From 0; `layer` and `iteration` may be any number.
  std::int64_t instance_of(std::int64_t layer, std::int64_t iteration = 0) const {
    const std::int64_t of_a_set = instances / slots;
    const auto modulo = [](std::int64_t value, std::int64_t n) { return (value % n + n) % n; };
    return modulo(layer - first_layer, of_a_set) + of_a_set * modulo(iteration, slots);
  }
};

// Which rank of the run the program is for. Ranks of one tensor-parallel group are neighbours. Partitions are padded to equal sizes, so buffers are the same
// on every rank; what a rank owns of them (instructions over real elements) differs on the last ones.
struct RankPosition {
  std::int64_t data_parallel = 0;
  std::int64_t tensor_parallel = 0;
};

// A unit of parameters as this rank holds it: `layers` flat vectors that are gathered, reduced and updated
// together. The ranks of its shard group hold a partition each: [rank * partition, + owned) of the `elements`, padded to
// `partition` elements; where nothing is partitioned both are `elements`. The ranks of its replica group hold the same.
struct UnitPlacement {
  // Buffers that stay; of parameters and gradients the whole or a partition.
  BufferId parameter = kNoBuffer, gradient = kNoBuffer, master = kNoBuffer;
  std::array<BufferId, 4> states{kNoBuffer, kNoBuffer, kNoBuffer, kNoBuffer};
  bool is_layer = false;  // not the embedding or the head: `first_layer` counts among the model's layers
  std::int32_t first_layer = 0;
  std::int64_t layers = 1;  // so many alike
  Elements elements = 0;    // on this tensor-parallel rank
  Elements partition =
      0;  // of each rank of the shard group, padding included; = elements where nothing is partitioned
  Elements owned = 0;                            // of this rank's partition, without padding
  GroupId shard = kNoGroup, replica = kNoGroup;  // kNoGroup: of this rank alone
  // Of the persistent buffers; master and states are partitions where there is a shard group.
  bool parameter_is_partition = false, gradient_is_partition = false;

  bool is_partitioned() const { return shard != kNoGroup; }
};

// A parameter tensor of this rank: `copies` times {outputs, inputs}, `offset` elements into each of its
// unit's vectors. It is the block of the model's tensor {whole_outputs, whole_inputs} that starts at
// {first_output, first_input}; what lies beyond the whole is padding (of the vocabulary).
struct TensorPlacement {
  std::string_view name;
  std::size_t unit = 0;  // index into StepProgram::units
  Elements outputs = 0, inputs = 0;
  std::int64_t copies = 1;
  Elements offset = 0;
  Elements first_output = 0, first_input = 0;
  Elements whole_outputs = 0, whole_inputs = 0;
  bool replicated = false;  // every tensor-parallel rank holds the same
};

// Something of the model that the program leaves out or does in another way.
struct Approximation {
  std::string_view key;  // of the model's description (docs/models.md); static
  std::string what;      // a sentence without its full stop
  bool trains_another_model = false;
  bool changes_figures = false;  // bytes, FLOPs or seconds are not those of the model
};

// What keeps the instructions of different streams in order; each stream runs its own in the program's order. Some
// instructions signal an event each time they have run. A wait names an event and an age: before its instruction starts,
// the execution of the event must be done that is `age` old among those before it in the program's order (0 is the
// youngest; nothing where there were fewer). So loops, what is peeled off them and micro-batches need no numbers of
// layers. wait_for_all makes every age mean nothing again.
struct Order {
  static constexpr std::uint16_t kNoEvent = 0xffff;

  struct Event {
    Stream stream = Stream::compute;
    std::uint16_t oldest = 0;  // age that anybody waits for
  };
  struct Wait {
    std::uint16_t event = 0;
    std::uint16_t age = 0;
  };
  // An instruction that waits or signals.
  struct Mark {
    std::uint32_t first_wait = 0;
    std::uint16_t waits = 0;
    std::uint16_t signals = kNoEvent;
  };

  std::vector<Event> events;
  std::vector<Wait> waits;
  std::vector<Mark> marks{{}};         // the first belongs to all instructions that do neither
  std::vector<std::uint16_t> mark_of;  // by instruction, into marks; empty where nothing is ordered

  const Mark& mark(std::size_t instruction) const {
    return marks[instruction < mark_of.size() ? mark_of[instruction] : 0];
  }
  std::span<const Wait> waits_of(std::size_t instruction) const {
    const Mark& at = mark(instruction);
    return {waits.data() + at.first_wait, at.waits};
  }
};

// What a part of a step is for.
enum class SectionKind : std::uint8_t {
  states,             // model states are acquired
  cleared_gradients,  // before the first micro-batch
  micro_batch,        // forward and backward of one; those of it follow
  embedding_forward,
  layer_forward,  // of one layer, its checkpoint included
  head_forward,
  head_backward,
  layer_backward,  // of one layer or block of layers, with its recomputation and its gradients' way
  embedding_backward,
  step,  // what follows the last micro-batch
};
std::string_view name_of(SectionKind kind);

// Instructions [begin, end) of a program: whole repeats, and memory that may stay acquired.
struct Section {
  SectionKind kind = SectionKind::states;
  std::uint32_t begin = 0, end = 0;
};

struct StepProgram {
  std::vector<Buffer> buffers;
  std::vector<Instruction> code;
  std::vector<Section> sections;  // in the order of their begins; those inside of others after them
  Order order;
  ModelConstants constants;
  std::vector<Approximation> approximations;
  std::vector<UnitPlacement> units;
  std::vector<TensorPlacement> tensors;
  std::vector<Group> groups;       // of this rank, those of more than one rank
  std::int64_t ranks = 1;          // of the run
  Elements parameters = 0;         // of the whole model, tied and replicated ones once
  Elements active_parameters = 0;  // that one token uses
  std::int64_t layers = 0;
  std::int64_t tokens_per_step = 0;  // of all ranks
  bool states_only = false;          // activations are not described (`params=` models)

  // Of a collective.
  const Group& group_of(const Instruction& instruction) const { return groups[instruction.group]; }
  // Empty for what is no collective.
  std::optional<GroupKind> kind_of(const Instruction& instruction) const {
    if (instruction.group == kNoGroup) return std::nullopt;
    return group_of(instruction).kind;
  }
  // kNoGroup where the group has one rank.
  GroupId find_group(GroupKind kind) const {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (groups[i].kind == kind) return static_cast<GroupId>(i);
    }
    return kNoGroup;
  }
  // A group of one rank where it is not listed.
  Group group(GroupKind kind) const { return group_or_alone(find_group(kind), kind); }
  Group shard_group(const UnitPlacement& unit) const { return group_or_alone(unit.shard, GroupKind::shard); }
  Group replica_group(const UnitPlacement& unit) const {
    return group_or_alone(unit.replica, GroupKind::replica);
  }
  // Of tensors that every tensor-parallel rank holds alike, this one counts, and writes, for all.
  bool speaks_for_replicated() const { return group(GroupKind::tensor_parallel).rank == 0; }
  // Where this rank's partition of a unit begins.
  Elements own_begin(const UnitPlacement& unit) const { return shard_group(unit).rank * unit.partition; }

  // The buffer whose memory `buffer` is, or is a part of.
  BufferId holder_of(BufferId buffer) const {
    const BufferId parent = buffers[buffer].parent;
    return parent == kNoBuffer ? buffer : parent;
  }

 private:
  Group group_or_alone(GroupId id, GroupKind kind) const { return id == kNoGroup ? Group{kind} : groups[id]; }
};

}  // namespace zeroplan::program
