#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/found_machine.hpp"
#include "planner/instructions/table.hpp"
#include "planner/program/step_log.hpp"
#include "planner/program/step_program.hpp"

// What a run of a step program came to, as plain data: an executor fills it in, reports lay it beside the
// prediction. Every figure is from an instrument that knows nothing of the prediction.
namespace zeroplan::program {

// A point of a running program.
struct Position {
  Phase phase = Phase::setup;
  std::int64_t layer = -1;      // -1: outside the layers
  std::size_t instruction = 0;  // index into StepProgram::code
};

// What ranks asked of a collective.
struct CollectiveCount {
  std::int64_t calls = 0;
  Bytes bytes = 0;  // of whole vectors
};

using CategoryBytes = std::array<Bytes, kCategories>;

// A barrier as one rank saw it, in nanoseconds of a clock that all processes of a host share.
struct Meeting {
  std::int64_t came = 0, left = 0;
};
inline constexpr std::size_t kMeetings = 3;

// Memory of a device as its driver counts it; all 0 where it has none of its own.
struct DeviceMemoryUse {
  Bytes total = 0;
  Bytes used = 0;        // by whoever
  Bytes of_process = 0;  // of it, by this process, as NVML says; 0 where it does not
  Bytes nvml_used = 0;   // of the device by whoever, as NVML says; it may count what the driver reserves
};
// When it is read.
enum class MemoryPoint : std::uint8_t {
  opened,         // the device is open: its context, streams and libraries
  arena,          // the buffers are allocated
  communicators,  // the groups have what they exchange memory with
  first_step,     // what libraries and kernels ask for late is there
  last_step,
};
inline constexpr std::size_t kMemoryPoints = 5;
std::string_view name_of(MemoryPoint point);

// A GPU while it worked, as NVML told of it every `interval_seconds`; figures that it does not tell are 0.
struct GpuSamples {
  std::int64_t count = 0;  // 0: nobody looked
  double interval_seconds = 0;
  std::int64_t sm_clock_mhz = 0, lowest_sm_clock_mhz = 0, most_sm_clock_mhz = 0;  // median, lowest, possible
  std::int64_t memory_clock_mhz = 0, most_memory_clock_mhz = 0;                   // median, possible
  double power_watts = 0, highest_power_watts = 0, power_limit_watts = 0;         // mean, highest, allowed
  std::int64_t temperature_celsius = 0;                                           // highest
  // Samples in which the clocks were held below their highest for any reason but that the GPU is idle, and those with
  // each of kClockReasons.
  std::int64_t held_back = 0;
  std::array<std::int64_t, kClockReasons.size()> with_reason{};
};

// One rank. Fixed in size and trivially copyable, so that ranks can send it to each other.
struct RankMeasurement {
  Bytes device_block_bytes = 0, host_block_bytes = 0;  // asked from the device for buffers
  // More, asked for while memory is observed: what nobody may write between the buffers of the device.
  Bytes device_zone_bytes = 0;
  Bytes device_peak_bytes = 0, host_peak_bytes = 0;  // held at once, at most
  CategoryBytes at_device_peak{}, at_host_peak{};    // what that was
  // What of it was written in the first step: whole units of the plan's alignment with something in them.
  CategoryBytes written_at_device_peak{}, written_at_host_peak{};
  Position peak_position;     // where the device's peak was reached
  Bytes workspace_bytes = 0;  // of the device, beside the buffers
  std::array<DeviceMemoryUse, kMemoryPoints> device_memory{};
  GpuSamples gpu;  // over the measured steps
  // Of one step, by index into StepProgram::groups, by collective.
  std::array<std::array<CollectiveCount, kCollectives>, kMostGroups> collectives{};
  // Carried between this rank's memory and others' by this rank itself, by group, by collective: counted
  // where bytes are sent, or copied between threads. Each byte is carried by one rank.
  std::array<std::array<Bytes, kCollectives>, kMostGroups> moved{};
  Bytes to_host_bytes = 0, to_device_bytes = 0;
  Flops product_flops = 0;                    // of the matrix products handed to the library
  std::int64_t host = 0;                      // the same for all ranks of a machine
  std::array<Meeting, kMeetings> meetings{};  // before the run, twice, and after it
  // Of the process it lives in; ranks that are threads share one.
  std::int64_t process = 0;
  Bytes process_growth_bytes = 0;  // highest resident set of the run less that before it
};

// Seconds of rank 0's measured steps, by kind of instruction and, for collectives, by group. What a call
// takes beyond the same call on the rank of the group that is in it shortest, and so came last, is waiting.
struct InstructionTime {
  Op op = Op::phase;
  std::optional<GroupKind> group;
  std::int64_t calls = 0;
  double seconds = 0;
  double waiting_seconds = 0;  // of seconds: for other ranks, collectives only
};

// Whether ranks hold alike what they must hold alike.
struct ReplicaCheck {
  std::int64_t compared = 0;  // checksums; 0: there was nothing to compare
  std::string difference;     // the first one, in words; empty: none
};
struct ReplicaChecks {
  ReplicaCheck data_parallel;    // whole parameters
  ReplicaCheck tensor_parallel;  // tensors that every tensor-parallel rank holds whole
  ReplicaCheck masters;          // parameters that a rank owns against their fp32 masters, rounded
};

// The first steps of a run, taken again by one rank that accumulates the same global batch.
struct OneRank {
  std::vector<StepMeasurement> steps;
  // How far losses and gradient norms may be from the run's, of their size; 0: the same bits.
  double loss_tolerance = 0, norm_tolerance = 0;
};

// Of weights that were drawn for the run, what their first loss depends on; 0 where they were not.
struct DrawnWeights {
  std::int64_t vocabulary = 0, hidden = 0;
};

struct Measurement {
  std::string device;    // "cpu: AMD EPYC ..., 2 threads a rank"
  std::string note;      // what a reader of its times must know of it; empty where there is nothing
  std::string gpu_note;  // why nothing is known of a GPU's clocks; empty where it is, or the device is none
  std::string launch;    // "threads", "mpi", "sockets"
  // What moves data between the ranks' devices, "NCCL 2.27.3 ..."; empty where it is the launcher's communicator.
  std::string exchange;
  std::int64_t ranks_of_device = 1;  // that share one
  std::string batches;               // where the tokens came from
  std::int64_t ranks = 1;
  std::vector<RankMeasurement> of_rank;
  DrawnWeights drawn;
  StepLog steps;
  std::vector<InstructionTime> times;
  // How long rank 0's kernels waited for collectives in the measured steps: those on their stream, and what they waited
  // for of those beside them.
  double waited_for_traffic_seconds = 0;
  int interrupted_by = 0;  // the signal that ended it before its last step, or 0
  ReplicaChecks replicas;
  OneRank one_rank;  // without steps where it was not asked for
};

}  // namespace zeroplan::program
