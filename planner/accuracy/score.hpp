#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/accuracy/run.hpp"
#include "planner/accuracy/statistics.hpp"
#include "planner/predict/prediction.hpp"

namespace zeroplan::accuracy {

enum class Measure { memory, time };
std::string_view name_of(Measure measure);

// One figure of one run beside its prediction: GiB or seconds.
struct ScoredFigure {
  Measure measure = Measure::memory;
  std::string id;
  std::string kind;  // of memory
  double predicted = 0;
  double low = 0, high = 0;  // measured; alike for time
  double error = 0;          // interval_error
};

// Runs that fitted or ran out of memory, by what was predicted for them.
struct VerdictCounts {
  std::size_t ran_predicted_yes = 0, ran_predicted_no = 0;
  std::size_t out_predicted_yes = 0, out_predicted_no = 0;
  std::size_t ran_not_said = 0, out_not_said = 0;  // it could not be said: neither right nor wrong

  std::size_t right() const { return ran_predicted_yes + out_predicted_no; }
  std::size_t wrong() const { return ran_predicted_no + out_predicted_yes; }
};

// A verdict that was wrong.
struct WrongVerdict {
  std::string id;
  bool ran = false;
  double predicted_gib = 0;
  double capacity_gib = 0;
};

// The scores of runs that belong together.
struct Score {
  std::string source, gpu, stage;                   // empty: all of them; stage "-": not stated
  std::string not_evidence;                         // of its runs (Run::not_evidence); empty: they are
  std::size_t runs = 0;                             // of the wanted quality
  std::size_t used = 0;                             // modelled
  std::map<std::string, std::size_t> not_modelled;  // by reason
  ErrorStatistics memory, time;
  ErrorStatistics
      held_out;  // of the same times, with constants that did not see the configuration (pace.hpp)
  std::optional<ScoredFigure> worst_memory, worst_time;  // with the largest error; none where all are 0
  VerdictCounts verdicts;
};

struct Accuracy {
  Score total;                 // of the runs that are evidence, as are the kinds, figures and verdicts below
  std::vector<Score> sources;  // in the order of the files
  std::vector<Score> groups;   // by source, GPU and stage
  std::vector<std::pair<std::string, ErrorStatistics>> memory_kinds;
  std::vector<ScoredFigure> figures;  // the largest error first
  std::vector<WrongVerdict> wrong_verdicts;
};

// Scores the runs whose quality is one of the letters of `qualities`.
Accuracy score_runs(const std::vector<Run>& runs, std::string_view qualities);

// What a tool that measures this kind of memory would show, of what is predicted.
Bytes predicted_memory(const predict::Prediction& prediction, MemoryKind kind);

// Nothing where the machine's rates or links are not described.
std::optional<double> predicted_step_seconds(const predict::Prediction& prediction);

}  // namespace zeroplan::accuracy
