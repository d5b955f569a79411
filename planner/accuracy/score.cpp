#include "planner/accuracy/score.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "planner/accuracy/modelled_run.hpp"
#include "planner/accuracy/pace.hpp"

namespace zeroplan::accuracy {
namespace {

using predict::Prediction;

constexpr double kBytesPerGib = static_cast<double>(kGiB);

double gib(Bytes bytes) { return static_cast<double>(bytes) / kBytesPerGib; }

void keep_worst(std::optional<ScoredFigure>& worst, const ScoredFigure& figure) {
  if (std::abs(figure.error) > (worst ? std::abs(worst->error) : 0)) worst = figure;
}

// A score with the errors it is made of.
struct OpenScore {
  Score score;
  std::vector<double> memory_errors, time_errors, held_out_errors;

  Score closed() const {
    Score result = score;
    result.memory = error_statistics(memory_errors);
    result.time = error_statistics(time_errors);
    result.held_out = error_statistics(held_out_errors);
    return result;
  }
};

class Scorer {
 public:
  void add(const Run& run) {
    OpenScore& source = find(sources_, run, "", "");
    OpenScore& group =
        find(groups_, run, gpu_label(run), run.zero_stage ? std::to_string(*run.zero_stage) : "-");
    is_evidence_ = run.not_evidence.empty();
    open_ = {&source, &group};
    if (is_evidence_) open_.push_back(&total_);
    for (OpenScore* open : open_) ++open->score.runs;
    const auto modelled = model_run(run);
    if (const auto* reason = std::get_if<NotModelled>(&modelled)) {
      for (OpenScore* open : open_) ++open->score.not_modelled[reason->reason];
      return;
    }
    for (OpenScore* open : open_) ++open->score.used;
    const auto& described = std::get<ModelledRun>(modelled);
    const Prediction prediction = predict::predict(described.model, described.plan, described.cluster);
    if (run.memory && !run.memory->is_upper_bound) add_memory(run, prediction);
    if (run.step_seconds) add_time(run, described, prediction);
    if (described.memory_known) add_verdict(run, prediction);
  }

  Accuracy result() && {
    Accuracy accuracy;
    accuracy.total = total_.closed();
    for (const OpenScore& open : sources_) accuracy.sources.push_back(open.closed());
    for (const OpenScore& open : groups_) accuracy.groups.push_back(open.closed());
    for (const auto& [kind, errors] : kinds_)
      accuracy.memory_kinds.emplace_back(kind, error_statistics(errors));
    std::stable_sort(figures_.begin(), figures_.end(), [](const ScoredFigure& a, const ScoredFigure& b) {
      return std::abs(a.error) > std::abs(b.error);
    });
    accuracy.figures = std::move(figures_);
    accuracy.wrong_verdicts = std::move(wrong_verdicts_);
    return accuracy;
  }

 private:
  static OpenScore& find(std::vector<OpenScore>& list, const Run& run, const std::string& gpu,
                         const std::string& stage) {
    for (OpenScore& open : list) {
      const Score& score = open.score;
      if (score.source == run.source && score.gpu == gpu && score.stage == stage &&
          score.not_evidence == run.not_evidence)
        return open;
    }
    OpenScore& open = list.emplace_back();
    open.score.source = run.source;
    open.score.not_evidence = run.not_evidence;
    open.score.gpu = gpu;
    open.score.stage = stage;
    return open;
  }

  void add_memory(const Run& run, const Prediction& prediction) {
    const std::string kind(name_of(run.memory->kind));
    const double predicted = gib(predicted_memory(prediction, run.memory->kind));
    const double low = run.memory->low_gib;
    const double high = run.memory->high_gib;
    const ScoredFigure figure{
        Measure::memory, run.id, kind, predicted, low, high, interval_error(predicted, low, high)};
    if (is_evidence_) kinds_[kind].push_back(figure.error);
    for (OpenScore* open : open_) {
      open->memory_errors.push_back(figure.error);
      keep_worst(open->score.worst_memory, figure);
    }
    if (is_evidence_) figures_.push_back(figure);
  }

  void add_time(const Run& run, const ModelledRun& modelled, const Prediction& prediction) {
    const std::optional<double> predicted = predicted_step_seconds(prediction);
    if (!predicted) return;
    const double measured = *run.step_seconds;
    const ScoredFigure figure{Measure::time,
                              run.id,
                              "",
                              *predicted,
                              measured,
                              measured,
                              interval_error(*predicted, measured, measured)};
    for (OpenScore* open : open_) {
      open->time_errors.push_back(figure.error);
      keep_worst(open->score.worst_time, figure);
    }
    if (!is_evidence_) return;
    figures_.push_back(figure);
    const double unseen = step_seconds(modelled, prediction.program(), pace_without(fold_of(modelled)));
    for (OpenScore* open : open_) {
      open->held_out_errors.push_back(interval_error(unseen, measured, measured));
    }
  }

  void add_verdict(const Run& run, const Prediction& prediction) {
    const bool out = run.outcome == Outcome::out_of_memory;
    if (!out && !(run.outcome == Outcome::ok && run.memory)) return;
    if (prediction.verdict == predict::Verdict::cannot_say) {
      for (OpenScore* open : open_) {
        VerdictCounts& counts = open->score.verdicts;
        ++(out ? counts.out_not_said : counts.ran_not_said);
      }
      return;
    }
    const bool yes = prediction.fits();
    for (OpenScore* open : open_) {
      VerdictCounts& counts = open->score.verdicts;
      ++(out ? (yes ? counts.out_predicted_yes : counts.out_predicted_no)
             : (yes ? counts.ran_predicted_yes : counts.ran_predicted_no));
    }
    if (yes == out && is_evidence_) {
      wrong_verdicts_.push_back({run.id, !out, gib(prediction.peak_bytes), gib(prediction.capacity_bytes)});
    }
  }

  OpenScore total_;
  std::vector<OpenScore> sources_, groups_;
  std::vector<OpenScore*> open_;  // those that the run in hand belongs to
  bool is_evidence_ = true;       // the run in hand
  std::map<std::string, std::vector<double>> kinds_;
  std::vector<ScoredFigure> figures_;
  std::vector<WrongVerdict> wrong_verdicts_;
};

}  // namespace

std::string_view name_of(Measure measure) { return measure == Measure::memory ? "memory" : "time"; }

// Tensors are what PyTorch calls allocated; the allocator's cache comes on top for reserved, and the rest of
// what the process holds for nvidia-smi. A source that names no kind is taken to mean reserved, the middle.
Bytes predicted_memory(const Prediction& prediction, MemoryKind kind) {
  Bytes bytes = prediction.memory().peak;
  for (const predict::OverheadTerm& term : prediction.overheads) {
    const bool of_the_cache = term.name == "allocator";
    const bool of_the_tensors = term.name == "library_workspace";
    const bool only_tensors = kind == MemoryKind::allocated || kind == MemoryKind::active;
    if (of_the_tensors || (of_the_cache && !only_tensors) || kind == MemoryKind::nvidia_smi) {
      bytes += term.bytes;
    }
  }
  return bytes;
}

std::optional<double> predicted_step_seconds(const Prediction& prediction) {
  return prediction.time.seconds > 0 ? std::optional(prediction.time.seconds) : std::nullopt;
}

Accuracy score_runs(const std::vector<Run>& runs, std::string_view qualities) {
  Scorer scorer;
  for (const Run& run : runs) {
    if (qualities.find(run.quality) != std::string_view::npos) scorer.add(run);
  }
  return std::move(scorer).result();
}

}  // namespace zeroplan::accuracy
