#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "executor/checkpoint.hpp"

namespace zeroplan::executor {

// When and where a run's state is saved.
struct SavePlan {
  std::string path;                         // of the last state; empty: nothing is saved
  std::int64_t every_steps = 0;             // also after every so many steps of the training; 0: not
  std::chrono::milliseconds every_time{0};  // also when so long has passed since the last time; 0: not
  std::int64_t keep = 1;  // states: above 1 each is also `path`.step-N, and only so many of these are left
};

// Saves a run's state between its steps, as its plan says. `save` writes the state after so many steps to a file.
class Saver {
 public:
  using Save = std::function<void(const SavedFile& file, std::int64_t steps)>;
  Saver(SavePlan plan, Save save);

  // Whether this rank's clock says that it is time. Ranks have to agree (executor/control.hpp).
  bool is_time() const;
  // After a step: saves when it is a step to save at, or `is_time` on some rank. All ranks call it.
  void after_step(std::int64_t steps, bool is_time);
  // At the end of the run.
  void finish(std::int64_t steps);

 private:
  void save(std::int64_t steps);

  SavePlan plan_;
  Save save_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::int64_t saved_steps_ = -1;
};

// Where several states are kept: removes the oldest files `path`.step-N with N up to `steps`, so that `keep` of
// them are left. Newer ones are of another run.
void remove_old_states(const SavePlan& plan, std::int64_t steps);

}  // namespace zeroplan::executor
