#include "executor/device/activation_rules.hpp"
#include "executor/device/cpu/functions.hpp"
#include "executor/device/cpu/kernels.hpp"
#include "executor/device/cpu/operands.hpp"

namespace zeroplan::executor::cpu {

using program::ActivationKind;

namespace {

// y = act(x) and its slope.

// x P(x), P the normal distribution's function; its slope is P(x) + x p(x), p the density.
struct Gelu {
  ZEROPLAN_INLINE static float value(float x) {
    const float tail = normal_tail(x, normal_bell(x));
    return x * (x < 0 ? tail : 1.0F - tail);
  }
  ZEROPLAN_INLINE static float slope(float x) {
    const float bell = normal_bell(x);
    const float tail = normal_tail(x, bell);
    return (x < 0 ? tail : 1.0F - tail) + x * bell * 0.398942280F;
  }
};

struct GeluTanh {
  ZEROPLAN_INLINE static float value(float x) { return x * sigmoid(gelu_tanh_argument(x)); }
  ZEROPLAN_INLINE static float slope(float x) { return gelu_tanh_slope(x, sigmoid(gelu_tanh_argument(x))); }
};

struct Silu {
  ZEROPLAN_INLINE static float value(float x) { return x * sigmoid(x); }
  ZEROPLAN_INLINE static float slope(float x) { return silu_slope(x, sigmoid(x)); }
};

struct Relu {
  ZEROPLAN_INLINE static float value(float x) { return relu(x); }
  ZEROPLAN_INLINE static float slope(float x) { return relu_slope(x); }
};

// A part of a row; `gate` is absent without one.
struct Piece {
  const float* up = nullptr;
  const float* gate = nullptr;
  Elements count = 0;
};

template <class Function>
void forward_piece(Piece piece, float* out) {
  if (piece.gate == nullptr) {
    wide([=]() ZEROPLAN_INLINE {
      ZEROPLAN_SIMD
      for (Elements i = 0; i < piece.count; ++i) out[i] = Function::value(piece.up[i]);
    });
    return;
  }
  wide([=]() ZEROPLAN_INLINE {
    ZEROPLAN_SIMD
    for (Elements i = 0; i < piece.count; ++i) out[i] = piece.up[i] * Function::value(piece.gate[i]);
  });
}

// The outputs may stand where the inputs do.
template <class Function>
void backward_piece(Piece piece, const float* dy, float* d_up, float* d_gate) {
  if (piece.gate == nullptr) {
    wide([=]() ZEROPLAN_INLINE {
      ZEROPLAN_SIMD
      for (Elements i = 0; i < piece.count; ++i) d_up[i] = dy[i] * Function::slope(piece.up[i]);
    });
    return;
  }
  wide([=]() ZEROPLAN_INLINE {
    ZEROPLAN_SIMD
    for (Elements i = 0; i < piece.count; ++i) {
      const float up = piece.up[i];
      const float gate = piece.gate[i];
      d_up[i] = dy[i] * Function::value(gate);
      d_gate[i] = dy[i] * up * Function::slope(gate);
    }
  });
}

// body(function, gated) with the kernel's activation.
template <class Body>
void with_activation(const Kernel& kernel, const Body& body) {
  switch (static_cast<ActivationKind>(kernel.extra)) {
    case ActivationKind::gelu:
      return body(Gelu{}, false);
    case ActivationKind::gelu_tanh:
      return body(GeluTanh{}, false);
    case ActivationKind::silu:
      return body(Silu{}, false);
    case ActivationKind::relu:
      return body(Relu{}, false);
    case ActivationKind::gated_gelu:
      return body(Gelu{}, true);
    case ActivationKind::gated_gelu_tanh:
      return body(GeluTanh{}, true);
    case ActivationKind::gated_silu:
      return body(Silu{}, true);
    case ActivationKind::gated_relu:
      return body(Relu{}, true);
  }
  refuse(kernel, "unknown activation");
}

// body(offset in rows of width, offset in rows of the pre-activation, count, scratch): a row's blocks, or
// blocks across rows where both kinds of rows are alike.
template <class Body>
void over_pieces(Workers& workers, std::int64_t rows, Elements width, bool gated, const Body& body) {
  if (!gated) {
    over_blocks(workers, rows * width, [&](Elements begin, Elements count, Scratch& scratch) {
      body(begin, begin, count, scratch);
    });
    return;
  }
  over_rows(workers, rows, width, [&](std::int64_t first, std::int64_t last, Scratch& scratch) {
    for (std::int64_t row = first; row < last; ++row) {
      for (Elements begin = 0; begin < width; begin += kBlockElements) {
        const Scratch::Frame frame(scratch);
        body(row * width + begin, row * 2 * width + begin, std::min(kBlockElements, width - begin), scratch);
      }
    }
  });
}

}  // namespace

void activation_forward(const Kernel& kernel, Workers& workers) {
  const std::int64_t rows = kernel.dims[0];
  const Elements width = kernel.dims[1];
  with_activation(kernel, [&]<class Function>(Function, bool gated) {
    const Tensor& before = kernel.operands[0];
    const Tensor& after = kernel.operands[1];
    over_pieces(workers, rows, width, gated,
                [&](Elements out, Elements in, Elements count, Scratch& scratch) {
                  const float* up = read(before, in, count, scratch);
                  const float* gate = gated ? read(before, in + width, count, scratch) : nullptr;
                  float* values = begin_write(after, out, count, scratch);
                  forward_piece<Function>({up, gate, count}, values);
                  finish_write(after, out, count, values);
                });
  });
}

void activation_backward(const Kernel& kernel, Workers& workers) {
  const std::int64_t rows = kernel.dims[0];
  const Elements width = kernel.dims[1];
  with_activation(kernel, [&]<class Function>(Function, bool gated) {
    const Tensor& dy = kernel.operands[0];
    const Tensor& before = kernel.operands[1];
    const Tensor& gradient = kernel.operands[2];
    over_pieces(workers, rows, width, gated,
                [&](Elements out, Elements in, Elements count, Scratch& scratch) {
                  const float* up = read(before, in, count, scratch);
                  const float* gate = gated ? read(before, in + width, count, scratch) : nullptr;
                  float* d_up = begin_write(gradient, in, count, scratch);
                  float* d_gate = gated ? begin_write(gradient, in + width, count, scratch) : nullptr;
                  backward_piece<Function>({up, gate, count}, read(dy, out, count, scratch), d_up, d_gate);
                  finish_write(gradient, in, count, d_up);
                  if (gated) finish_write(gradient, in + width, count, d_gate);
                });
  });
}

void residual_add(const Kernel& kernel, const StepSettings& settings, Workers& workers) {
  const std::int64_t tokens = kernel.dims[0];
  const Elements hidden = kernel.dims[1];
  const Tensor& branch = kernel.operands[0];
  const Tensor bias = kernel.operands[1];
  const Tensor& residual = kernel.operands[2];
  const Tensor mask = kernel.operands[3];
  const Tensor& out = kernel.operands[4];
  over_rows(workers, tokens, hidden, [&](std::int64_t first, std::int64_t last, Scratch& scratch) {
    float* zeros = nullptr;
    if (!bias) {
      zeros = scratch.floats(hidden);
      std::fill_n(zeros, hidden, 0.0F);
    }
    const float* shift = bias ? read(bias, 0, hidden, scratch) : zeros;
    for (std::int64_t row = first; row < last; ++row) {
      const Scratch::Frame frame(scratch);
      const Elements offset = row * hidden;
      const float* a = read(branch, offset, hidden, scratch);
      const float* b = read(residual, offset, hidden, scratch);
      float* to = begin_write(out, offset, hidden, scratch);
      if (mask) {
        float* dropped = scratch.floats(hidden);
        for (Elements i = 0; i < hidden; ++i) dropped[i] = a[i] + shift[i];
        drop_drawn(kernel, settings, mask, offset, hidden, dropped, dropped);
        for (Elements i = 0; i < hidden; ++i) to[i] = dropped[i] + b[i];
      } else {
        wide([=]() ZEROPLAN_INLINE {
          ZEROPLAN_SIMD
          for (Elements i = 0; i < hidden; ++i) to[i] = a[i] + shift[i] + b[i];
        });
      }
      finish_write(out, offset, hidden, to);
    }
  });
}

}  // namespace zeroplan::executor::cpu
