#include "planner/accuracy/run.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <span>
#include <utility>

#include "planner/accuracy/csv.hpp"
#include "planner/describe/machine/hardware_reader.hpp"
#include "planner/describe/plan/engine.hpp"
#include "planner/error.hpp"

namespace zeroplan::accuracy {
namespace {

constexpr std::int64_t kLargestCount = 1'000'000'000;
constexpr std::int64_t kMostNics = 1024;

constexpr std::array kMemoryKinds{MemoryKind::allocated, MemoryKind::active, MemoryKind::reserved,
                                  MemoryKind::nvidia_smi, MemoryKind::unspecified};

// As files have them, in the order of Block.
const std::vector<std::string>& block_names() {
  static const std::vector<std::string> names{"gpt2", "opt", "mpt", "llama", "qwen", "nemotron", "falcon"};
  return names;
}

// The columns of measured_runs.csv (docs/accuracy.md) that nothing is read of, or not of every row.
constexpr std::array<std::string_view, 58> kColumns{"id",
                                                    "source",
                                                    "source_locator",
                                                    "date_or_version",
                                                    "model",
                                                    "params_B",
                                                    "layers",
                                                    "hidden",
                                                    "ffn",
                                                    "heads",
                                                    "kv_heads",
                                                    "vocab",
                                                    "seq_len",
                                                    "n_gpus",
                                                    "gpus_per_node",
                                                    "gpu_type",
                                                    "gpu_family",
                                                    "gpu_mem_GB",
                                                    "interconnect",
                                                    "dp",
                                                    "tp",
                                                    "pp",
                                                    "vp",
                                                    "cp",
                                                    "ep",
                                                    "zero_stage",
                                                    "sharding",
                                                    "micro_batch",
                                                    "global_batch",
                                                    "grad_accum",
                                                    "precision",
                                                    "optimizer",
                                                    "activation_recompute",
                                                    "flash_attention",
                                                    "offload",
                                                    "compile",
                                                    "measured_peak_mem",
                                                    "mem_unit",
                                                    "mem_kind",
                                                    "mem_detail",
                                                    "mem_lo_GiB",
                                                    "mem_hi_GiB",
                                                    "measured_static_mem_GiB",
                                                    "measured_tokens_per_s_per_gpu",
                                                    "measured_samples_per_s_total",
                                                    "measured_tflops_per_gpu",
                                                    "tflops_convention",
                                                    "measured_mfu",
                                                    "measured_hfu",
                                                    "measured_step_time_s",
                                                    "norm_step_time_s",
                                                    "norm_tokens_per_s_per_gpu",
                                                    "outcome",
                                                    "limit",
                                                    "quality",
                                                    "derived_fields",
                                                    "notes",
                                                    "plan_reason"};

// The fields of one row by column name. Problems are entered; a column that the file lacks is one problem,
// not one for every row.
class RowReader {
 public:
  RowReader(const CsvTable& table, Problems& problems) : table_(table), problems_(problems) {}

  void next(const CsvTable::Row& row) { row_ = &row; }

  const std::string& text(std::string_view name) {
    static const std::string none;
    asked_.emplace(name);
    if (const auto column = table_.column(name)) return row_->fields[*column];
    if (missing_.emplace(name).second) {
      problems_.add({table_.source, 1, std::string(name), "the column is missing"});
    }
    return none;
  }

  bool has(std::string_view name) {
    asked_.emplace(name);
    return table_.column(name).has_value();
  }

  // Of a column that a file may leave out: empty then.
  const std::string& optional_text(std::string_view name) {
    static const std::string none;
    return has(name) ? text(name) : none;
  }

  // yes, no, or nothing, of such a column.
  std::optional<bool> optional_answer(std::string_view name) {
    const std::string& field = optional_text(name);
    if (field == "yes") return true;
    if (field == "no") return false;
    if (!field.empty()) refuse(name, "yes, no, or nothing");
    return std::nullopt;
  }

  // Enters a problem for every column that nobody asked for and that is not one of `more`.
  void refuse_unknown(std::span<const std::string_view> more) {
    std::vector<std::string> known(asked_.begin(), asked_.end());
    known.insert(known.end(), more.begin(), more.end());
    for (const std::string& name : table_.header) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      const std::string nearest = nearest_name(name, known);
      problems_.add(
          {table_.source, 1, name, "unknown column" + (nearest.empty() ? "" : "; nearest: " + nearest)});
    }
  }

  std::optional<std::int64_t> count(std::string_view name, std::int64_t minimum = 1,
                                    std::int64_t maximum = kLargestCount) {
    const std::string& field = text(name);
    if (field.empty()) return std::nullopt;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error == std::errc{} && end == field.data() + field.size() && value >= minimum && value <= maximum) {
      return value;
    }
    refuse(name, fmt::format("a whole number from {} to {}", minimum, maximum));
    return std::nullopt;
  }

  std::optional<double> positive(std::string_view name) {
    const std::string& field = text(name);
    if (field.empty()) return std::nullopt;
    double value = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error == std::errc{} && end == field.data() + field.size() && std::isfinite(value) && value > 0) {
      return value;
    }
    refuse(name, "a number above 0");
    return std::nullopt;
  }

  void refuse(std::string_view name, const std::string& expected) {
    problems_.add({table_.source, row_->line, std::string(name),
                   fmt::format("found {}, expected {}", quoted(text(name)), expected)});
  }

 private:
  const CsvTable& table_;
  Problems& problems_;
  const CsvTable::Row* row_ = nullptr;
  std::set<std::string, std::less<>> missing_, asked_;
};

void read_model(RowReader& row, Run& run) {
  run.model = row.text("model");
  run.tied_embeddings = row.optional_answer("tied_embeddings");
  if (const std::string& block = row.optional_text("block"); !block.empty()) {
    const auto found = std::find(block_names().begin(), block_names().end(), block);
    if (found == block_names().end()) {
      row.refuse("block", fmt::format("one of {}", fmt::join(block_names(), ", ")));
    } else {
      run.block = static_cast<Block>(found - block_names().begin());
    }
  }
  run.layers = row.count("layers");
  run.hidden = row.count("hidden");
  run.ffn = row.count("ffn");
  run.heads = row.count("heads");
  run.kv_heads = row.count("kv_heads");
  run.vocabulary = row.count("vocab");
  run.sequence = row.count("seq_len");
}

void read_layout(RowReader& row, Run& run) {
  run.gpus = row.count("n_gpus");
  run.gpus_per_node = row.count("gpus_per_node");
  run.hardware = row.optional_text("hw");
  if (!run.hardware.empty() && describe::find_preset(run.hardware) == nullptr) {
    row.refuse("hw", "the name of a machine (zeroplan hw list)");
  }
  run.gpu_type = row.text("gpu_type");
  run.gpu_family = row.text("gpu_family");
  run.gpu_memory_gb = row.positive("gpu_mem_GB");
  run.interconnect = row.text("interconnect");
  run.data_parallel = row.count("dp");
  run.tensor_parallel = row.count("tp");
  run.pipeline_parallel = row.count("pp");
  run.context_parallel = row.count("cp");
  run.expert_parallel = row.count("ep");
  run.zero_stage = row.count("zero_stage", 0, 3);
  if (row.has("shard_ranks")) run.shard_ranks = row.count("shard_ranks");
  run.pcie = row.optional_answer("pcie");
  if (row.has("nics")) run.nics = row.count("nics", 1, kMostNics);
  if (row.has("node_gbits_per_s")) run.node_gbits_per_s = row.positive("node_gbits_per_s");
  run.micro_batch = row.count("micro_batch");
  run.global_batch = row.count("global_batch");
  run.gradient_accumulation = row.count("grad_accum");
}

std::optional<MeasuredMemory> read_memory(RowReader& row) {
  const std::optional<double> low = row.positive("mem_lo_GiB");
  const std::optional<double> high = row.positive("mem_hi_GiB");
  const bool is_upper_bound = row.optional_answer("mem_upper_bound").value_or(false);
  const std::string& text = row.text("mem_kind");
  if (!low && !high && text.empty()) return std::nullopt;
  for (const MemoryKind kind : kMemoryKinds) {
    if (text != name_of(kind)) continue;
    if (low && high && *low <= *high) {
      return MeasuredMemory{kind, *low, *high, is_upper_bound};
    }
    row.refuse("mem_hi_GiB", "an interval from mem_lo_GiB to mem_hi_GiB, for mem_kind is stated");
    return std::nullopt;
  }
  row.refuse("mem_kind", "allocated, active, reserved, nvidia-smi or unspecified");
  return std::nullopt;
}

void read_outcome(RowReader& row, Run& run) {
  const std::string& outcome = row.text("outcome");
  if (outcome == "OOM") {
    run.outcome = Outcome::out_of_memory;
  } else if (outcome == "fail") {
    run.outcome = Outcome::failed;
  } else if (outcome != "ok") {
    row.refuse("outcome", "ok, OOM or fail");
  }
  const std::string& quality = row.text("quality");
  if (quality == "A" || quality == "B" || quality == "C") {
    run.quality = quality.front();
  } else {
    row.refuse("quality", "A, B or C");
  }
}

// Where no step time was measured, tokens per second say it best: some sources cut samples per second to
// whole ones (llm-foundry prints 1 for 1.37), and times made of those are up to twice too long.
std::optional<double> step_seconds(RowReader& row, const Run& run) {
  const std::optional<double> stated = row.positive("norm_step_time_s");
  if (!row.has("measured_step_time_s") || !row.has("norm_tokens_per_s_per_gpu")) return stated;
  const std::optional<double> rate = row.positive("norm_tokens_per_s_per_gpu");
  const bool counted = run.global_batch && run.sequence && run.gpus;
  if (!row.text("measured_step_time_s").empty() || !rate || !counted) return stated;
  const double tokens = static_cast<double>(*run.global_batch) * static_cast<double>(*run.sequence);
  return tokens / (static_cast<double>(*run.gpus) * *rate);
}

// How the run is planned where that is not the default.
void read_plan(RowReader& row, Run& run) {
  if (const std::string& engine = row.optional_text("engine"); !engine.empty()) {
    try {
      run.engine = describe::find_engine(engine)->name;
    } catch (const ConfigurationError&) {
      row.refuse("engine", fmt::format("one of {}", fmt::join(describe::engine_names(), ", ")));
    }
  }
  run.overlap = row.optional_answer("overlap");
  run.dropout = row.optional_answer("dropout");
  run.partition_activations = row.optional_answer("partition_activations");
}

// What of the run is scored: everything that was measured, or what the column says.
void take_scored(RowReader& row, Run& run) {
  const std::string& scored = row.optional_text("scored");
  const std::string& reason = row.optional_text("scored_reason");
  if (scored.empty() || scored == "yes") return;
  if (scored == "memory") {
    run.step_seconds.reset();
  } else if (scored == "time") {
    run.memory.reset();
  } else if (scored == "no") {
    run.not_scored = reason;
  } else {
    row.refuse("scored", "yes, memory, time or no");
  }
  if (reason.empty()) {
    row.refuse("scored", "a reason in the column scored_reason, because not everything is scored");
  }
}

Run measured_run(RowReader& row) {
  Run run;
  run.id = row.text("id");
  run.source = row.text("source");
  run.parameters_billions = row.positive("params_B");
  read_model(row, run);
  read_layout(row, run);
  run.precision = row.text("precision");
  run.optimizer = row.text("optimizer");
  run.recompute = row.text("activation_recompute");
  run.flash_attention = row.text("flash_attention");
  run.offload = row.text("offload");
  run.compile = row.text("compile");
  read_plan(row, run);
  run.memory = read_memory(row);
  run.step_seconds = step_seconds(row, run);
  read_outcome(row, run);
  take_scored(row, run);
  run.not_evidence = row.optional_text("not_evidence");
  return run;
}

}  // namespace

std::string_view name_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::allocated:
      return "allocated";
    case MemoryKind::active:
      return "active";
    case MemoryKind::reserved:
      return "reserved";
    case MemoryKind::nvidia_smi:
      return "nvidia-smi";
    case MemoryKind::unspecified:
      break;
  }
  return "unspecified";
}

std::vector<Run> read_runs(std::string_view text, const std::string& source) {
  const CsvTable table = read_csv(text, source);
  if (!table.column("source")) {
    throw ConfigurationError(Problem{
        source, 1, "", "found a header without \"source\", expected the columns of measured_runs.csv"});
  }
  std::vector<Run> runs;
  Problems problems;
  RowReader reader(table, problems);
  for (const CsvTable::Row& row : table.rows) {
    reader.next(row);
    Run& run = runs.emplace_back(measured_run(reader));
    run.file = source;
    run.line = row.line;
  }
  if (!table.rows.empty()) reader.refuse_unknown(kColumns);
  problems.throw_if_any();
  return runs;
}

}  // namespace zeroplan::accuracy
