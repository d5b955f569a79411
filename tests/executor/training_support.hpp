#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "executor/communicator/threads/thread_communicator.hpp"
#include "executor/rank.hpp"
#include "planner/describe/model/model.hpp"
#include "planner/describe/plan/plan.hpp"

// Whole training steps of small models with ranks as threads.
namespace zeroplan::executor::test {

// The token at `position` of a sequence. A target is the token that comes next. `sequence` counts through the
// global batch of a step: data-parallel ranks take theirs one after the other, micro-batch by micro-batch.
using TokenAt = std::function<std::int32_t(std::int64_t step, std::int64_t sequence, std::int64_t position)>;

// Each token follows from the one before, so there is something to learn.
TokenAt learnable_tokens(std::int64_t vocabulary);
// The first step's again and again.
TokenAt same_every_step(TokenAt tokens);

// A device that calls `before` and `after` around each kernel of `device`.
using KernelHook = std::function<void(const Kernel&)>;
std::unique_ptr<Device> hooked_device(std::unique_ptr<Device> device, KernelHook before, KernelHook after);

struct Degrees {
  std::int64_t data_parallel = 1, tensor_parallel = 1;
};

struct TrainingOptions {
  std::int64_t steps = 1;
  StepSettings settings = {.learning_rate = 3e-3F};
  std::function<double(std::int64_t update)> rate{};  // absent: that of `settings`
  float loss_scale = 1;
  ParameterValue initial{};  // absent: normal_initialization(17, layers)
  TokenAt tokens{};          // absent: learnable_tokens
  ThreadOptions threads{};
  // Of a world rank; absent: the CPU device.
  std::function<std::unique_ptr<Device>(std::int64_t world_rank)> device{};
  MakeDataPlanes planes{};  // absent: those of the world
  // The world as a rank sees it; absent: as it is.
  std::function<std::unique_ptr<Communicator>(Communicator& world)> world{};
  // On the rank's own thread: after initialization with step 0, after the first step with step 1 ...
  std::function<void(Rank& rank, std::int64_t step)> visit{};
};

struct Training {
  std::vector<StepResult> results;                           // the same on every rank, or train() throws
  std::vector<float> losses, norms;                          // of results
  std::vector<ArenaSize> high_water;                         // of each rank
  CategoryBytes at_high_water{};                             // of rank 0
  Bytes data_parallel_bytes = 0, tensor_parallel_bytes = 0;  // rank 0's ledgers
};
Training train(const describe::Model& model, const describe::Plan& plan, const TrainingOptions& options);

// Three layers (stage 3 uses its two slots again) of odd sizes, for tests with many runs.
describe::Model tiny_gpt();
describe::Model tiny_llama();
describe::Plan fp32_plan();

// normal_initialization with matrices `factor` times as large, for gradients well above rounding.
ParameterValue wide_initialization(std::int64_t layers, float factor);

bool same_bits(const std::vector<float>& a, const std::vector<float>& b);

// ---- parameters and what belongs to them, of the whole model ----

struct TensorName {
  std::string name;
  std::int64_t layer = 0;
  bool operator<(const TensorName& other) const {
    return std::tie(name, layer) < std::tie(other.name, other.layer);
  }
};

struct WholeTensor {
  Elements outputs = 0, inputs = 1;
  std::vector<float> values;
  std::vector<int> owners;  // how many ranks said that an element is theirs

  float largest() const;  // absolute value
};

enum class State : std::uint8_t { parameter, gradient, master, momentum, variance };

// Puts a state's tensors together from the partitions that ranks own. Parameters of tensor-parallel ranks
// that hold the same count as the first one's.
class WholeModel {
 public:
  WholeModel(const describe::Model& model, const describe::Plan& plan);

  // Adds what `rank` owns. May be called by all ranks at once.
  void collect(Rank& rank, State state);

  // Throws std::runtime_error when an element was collected from no rank or from several.
  const std::map<TensorName, WholeTensor>& tensors() const;
  const WholeTensor& at(const std::string& name, std::int64_t layer = 0) const;
  // What ranks hold of rows that no token has: vocabulary padding.
  const std::vector<float>& padding() const { return padding_; }
  double sum_of_squares() const;

 private:
  std::mutex mutex_;
  std::map<TensorName, WholeTensor> tensors_;
  std::vector<float> padding_;
};

// The memory of a state's unit in one layer, with the range of the unit's flat vector that it holds and that
// this rank owns.
struct UnitMemory {
  Tensor tensor;
  Elements first = 0;                   // flat index of the first element in `tensor`
  Elements own_begin = 0, own_end = 0;  // flat indices
};
UnitMemory memory_of(Rank& rank, const program::UnitPlacement& unit, State state, std::int64_t layer);

}  // namespace zeroplan::executor::test
