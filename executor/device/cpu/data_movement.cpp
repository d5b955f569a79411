#include <algorithm>
#include <cstring>

#include "executor/device/cpu/kernels.hpp"
#include "executor/device/cpu/operands.hpp"
#include "executor/device/cpu/wide.hpp"

namespace zeroplan::executor::cpu {

void fill_zero(const Kernel& kernel, Workers& workers) {
  const Elements elements = kernel.dims[0];
  const Tensor& out = operand(kernel, 0, elements);
  const Bytes size = program::bytes_of(out.type);
  over_blocks(workers, elements, [&](Elements begin, Elements count, Scratch&) {
    std::memset(out.data + begin * size, 0, static_cast<std::size_t>(count * size));
  });
}

void copy(const Kernel& kernel, Workers& workers) {
  const Elements elements = kernel.dims[0];
  const Tensor& in = operand(kernel, 0, elements);
  const Tensor& out = operand(kernel, 1, elements);
  if (in.data == out.data) return;
  if (in.type == out.type) {
    const Bytes size = program::bytes_of(out.type);
    over_blocks(workers, elements, [&](Elements begin, Elements count, Scratch&) {
      std::memmove(out.data + begin * size, in.data + begin * size, static_cast<std::size_t>(count * size));
    });
    return;
  }
  real_operand(kernel, 0, elements);
  real_operand(kernel, 1, elements);
  over_blocks(workers, elements, [&](Elements begin, Elements count, Scratch& scratch) {
    finish_write(out, begin, count, read(in, begin, count, scratch));
  });
}

void accumulate(const Kernel& kernel, Workers& workers) {
  const Elements elements = kernel.dims[0];
  const Tensor& in = real_operand(kernel, 0, elements);
  const Tensor& out = real_operand(kernel, 1, elements);
  over_blocks(workers, elements, [&](Elements begin, Elements count, Scratch& scratch) {
    add(out, begin, count, read(in, begin, count, scratch), scratch);
  });
}

}  // namespace zeroplan::executor::cpu
