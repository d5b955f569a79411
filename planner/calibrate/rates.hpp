#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/calibrate/probes.hpp"
#include "planner/describe/machine/calibration.hpp"
#include "planner/describe/machine/cluster.hpp"

// From measured seconds to the tables of a machine's description.
namespace zeroplan::calibrate {

// Seconds of each instruction of a program by its index, one list for each repeat; 0 where it did not run.
using Repeats = std::vector<std::vector<double>>;

// What rounds of one measurement come to: the median of them, and half of what lies between the quartiles
// over it.
struct Typical {
  double value = 0;
  double spread = 0;
};
Typical typical_of(const std::vector<double>& values);

// Of one round's repeats, by instruction. A step is a sum over many instructions, so in a round the mean
// counts.
std::vector<double> mean_of(const Repeats& repeats);

// Rates of kernels from probes of one number of ranks.
class KernelTables {
 public:
  // On a GPU, what the host's processors do of a step with offloaded states is not the device's.
  explicit KernelTables(bool of_gpu = false) : of_gpu_(of_gpu) {}

  // A grid's instructions become a table of its sizes; a model's are told apart by size and averaged where
  // sizes are nearly the same. Products and attention count in grids only.
  void add(const Probe& probe, const Repeats& repeats);
  describe::CalibratedRates rates(std::int64_t devices, std::string source, double skew) const;
  // Seconds of the shortest of all kernels so far; 0 before there is one.
  double shortest_seconds() const { return shortest_seconds_; }

 private:
  struct Sample {
    describe::KernelKind kind;
    std::array<double, describe::kMostAxes> sizes{};
    double rate = 0, spread = 0;
  };
  std::vector<Sample> grid_, streaming_;
  double shortest_seconds_ = 0;
  bool of_gpu_;
};

// The tables of a collective probe, one for each collective.
std::vector<describe::AttainedCollective> collective_tables(const Probe& probe, const Repeats& repeats,
                                                            const std::string& source);

// Of a skew probe: seconds in collectives, less those of the fastest, over the seconds computed.
double skew_of(const Probe& probe, const Repeats& repeats);

}  // namespace zeroplan::calibrate
