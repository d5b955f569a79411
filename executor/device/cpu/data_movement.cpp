#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "executor/device/cpu/kernels.hpp"
#include "executor/device/cpu/operands.hpp"
#include "executor/device/cpu/wide.hpp"
#include "planner/instructions/table.hpp"

namespace zeroplan::executor::cpu {

void fill_zero(const Kernel& kernel, Workers& workers) {
  const Elements elements = kernel.dims[0];
  const Tensor& out = kernel.operands[0];
  const Bytes size = program::bytes_of(out.type);
  over_blocks(workers, elements, [&](Elements begin, Elements count, Scratch&) {
    std::memset(out.data + begin * size, 0, static_cast<std::size_t>(count * size));
  });
}

void copy(const Kernel& kernel, Workers& workers) {
  const Elements elements = kernel.dims[0];
  const Tensor& in = kernel.operands[0];
  const Tensor& out = kernel.operands[1];
  if (in.data == out.data) return;
  if (in.type == out.type) {
    const Bytes size = program::bytes_of(out.type);
    over_blocks(workers, elements, [&](Elements begin, Elements count, Scratch&) {
      std::memmove(out.data + begin * size, in.data + begin * size, static_cast<std::size_t>(count * size));
    });
    return;
  }
  if (!program::allows(program::Types::real, in.type) || !program::allows(program::Types::real, out.type)) {
    refuse(kernel,
           fmt::format("{} does not become {}", program::name_of(in.type), program::name_of(out.type)));
  }
  over_blocks(workers, elements, [&](Elements begin, Elements count, Scratch& scratch) {
    finish_write(out, begin, count, read(in, begin, count, scratch));
  });
}

void accumulate(const Kernel& kernel, Workers& workers) {
  const Elements elements = kernel.dims[0];
  const Tensor& in = kernel.operands[0];
  const Tensor& out = kernel.operands[1];
  over_blocks(workers, elements, [&](Elements begin, Elements count, Scratch& scratch) {
    add(out, begin, count, read(in, begin, count, scratch), scratch);
  });
}

}  // namespace zeroplan::executor::cpu
