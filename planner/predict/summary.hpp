#pragma once

#include <cstddef>
#include <cstdint>

#include "planner/predict/delays.hpp"
#include "planner/predict/memory.hpp"
#include "planner/predict/step_costs.hpp"
#include "planner/predict/traffic.hpp"
#include "planner/predict/work.hpp"
#include "planner/program/step_program.hpp"

namespace zeroplan::predict {

// What the readers find of a section of a program: all that can be said of it without what is around it. Sections in
// sequence and sections repeated have summaries again, so a step is a composition of those of its sections.
struct Summary {
  SectionMemory memory;
  Traffic traffic;
  Work work;
  SectionTime time;

  // This section, then `later` `count` times.
  void append(const Summary& later, std::int64_t count = 1);
  // This section `count` times; the layer of its peak is that of its first.
  Summary power(std::int64_t count) const;
};

// Of instructions [begin, end), between which every repeat is whole. `costs` may be null: there is no time then.
Summary summarize(const program::StepProgram& program, const StepCosts* costs, std::size_t begin,
                  std::size_t end);

}  // namespace zeroplan::predict
