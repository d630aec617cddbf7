// Orthogonal polynomials whose degree is a tensor too. All of them obey a recurrence of three terms
// (DLMF 18.9), which runs on all elements at once as far as the largest degree.

#include <ATen/ops/special_chebyshev_polynomial_t_meta.h>
#include <ATen/ops/special_chebyshev_polynomial_u_meta.h>
#include <ATen/ops/special_chebyshev_polynomial_v_meta.h>
#include <ATen/ops/special_chebyshev_polynomial_w_meta.h>
#include <ATen/ops/special_hermite_polynomial_h_meta.h>
#include <ATen/ops/special_hermite_polynomial_he_meta.h>
#include <ATen/ops/special_laguerre_polynomial_l_meta.h>
#include <ATen/ops/special_legendre_polynomial_p_meta.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_t_meta.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_u_meta.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_v_meta.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_w_meta.h>

#include <cmath>

#include "aten/elementwise.h"

namespace torch_xla::aten {
namespace {

using Args = PointwiseArgs&;

// p(k+1) from p(k) and p(k-1).
using Step = XlaValue (*)(XlaValue k, XlaValue x, XlaValue current, XlaValue previous);

// The polynomial of degree n (a whole number) with p(0) = 1 and p(1) = first; 0 for a negative n.
// Elements that `skip` marks need not be right.
XlaValue recurrence(Builder& b, XlaValue x, XlaValue n, XlaValue first, XlaValue skip, Step step) {
  Dims all;
  for (int64_t i = 0; i < x.rank(); ++i) all.push_back(i);
  const XlaValue zero = b.zeros_like(x), one = b.ones_like(x);
  const XlaValue degree = b.select(skip, zero, n);
  auto counter = [&](XlaValue k) { return b.broadcast_to(k, x.dims()); };
  auto unfinished = [&](const stablehlo::Values& v) {
    const XlaValue pending = b.and_(b.lt(counter(v[0]), degree), b.eq(v[2], v[2]));
    return b.reduce_or(pending, all);
  };
  auto advance = [&](const stablehlo::Values& v) -> stablehlo::Values {
    const XlaValue k = counter(v[0]), pending = b.lt(k, degree);
    return {v[0] + 1, b.select(pending, v[2], v[1]),
            b.select(pending, step(k, x, v[2], v[1]), v[2])};
  };
  const XlaValue start = b.scalar(1, x.element_type());
  const XlaValue last = b.while_({start, one, first}, unfinished, advance)[2];
  return b.select(b.lt(n, zero), zero, b.select(b.lt(n, one), one, last));
}

// C's conversion to a 64-bit integer; what does not fit becomes the least one: negative.
XlaValue truncated(Builder& b, XlaValue n) {
  const XlaValue whole = b.select(b.lt(n, b.zeros_like(n)), b.ceil(n), b.floor(n));
  return b.select(b.lt(b.abs(n), b.full_like(n, 0x1p63)), whole, b.full_like(n, -1));
}

XlaValue nothing(Builder& b, XlaValue x) { return b.constant(ElementType::kPred, x.dims(), false); }

// --- Chebyshev's four kinds, p(1) = 2x + shift; of degrees above 6 inside (-1, 1) by angles ---

enum class Kind { kT, kU, kV, kW };

XlaValue by_angle(Builder& b, Kind kind, XlaValue x, XlaValue n) {
  const XlaValue angle = b.acos(x), half = angle * 0.5;
  switch (kind) {
    case Kind::kT:
      return b.cosine(n * angle);
    case Kind::kU:
      return b.sine((n + 1) * angle) / b.sine(angle);
    case Kind::kV:
      return b.cosine((n + 0.5) * angle) / b.cosine(half);
    default:
      return b.sine((n + 0.5) * angle) / b.sine(half);
  }
}

template <Kind kind, bool shifted>
XlaValue chebyshev_polynomial(Args a) {
  Builder& b = a.b;
  const XlaValue x = shifted ? 2 * a[0] - 1 : a[0], n = truncated(b, a[1]);
  const XlaValue first = kind == Kind::kT   ? x
                         : kind == Kind::kU ? 2 * x
                         : kind == Kind::kV ? 2 * x - 1
                                            : 2 * x + 1;
  const XlaValue inside = b.and_(b.gt(n, a.number(6)), b.lt(b.abs(x), a.number(1)));
  auto step = [](XlaValue, XlaValue x, XlaValue current, XlaValue previous) {
    return 2 * x * current - previous;
  };
  return b.select(inside, by_angle(b, kind, x, n), recurrence(b, x, n, first, inside, step));
}

const PointwiseOp kT{"aten::special_chebyshev_polynomial_t", chebyshev_polynomial<Kind::kT, false>};
const PointwiseOp kU{"aten::special_chebyshev_polynomial_u", chebyshev_polynomial<Kind::kU, false>};
const PointwiseOp kV{"aten::special_chebyshev_polynomial_v", chebyshev_polynomial<Kind::kV, false>};
const PointwiseOp kW{"aten::special_chebyshev_polynomial_w", chebyshev_polynomial<Kind::kW, false>};
const PointwiseOp kShiftedT{"aten::special_shifted_chebyshev_polynomial_t",
                            chebyshev_polynomial<Kind::kT, true>};
const PointwiseOp kShiftedU{"aten::special_shifted_chebyshev_polynomial_u",
                            chebyshev_polynomial<Kind::kU, true>};
const PointwiseOp kShiftedV{"aten::special_shifted_chebyshev_polynomial_v",
                            chebyshev_polynomial<Kind::kV, true>};
const PointwiseOp kShiftedW{"aten::special_shifted_chebyshev_polynomial_w",
                            chebyshev_polynomial<Kind::kW, true>};

// --- Hermite, Laguerre, Legendre ---

// Degrees beyond what the dtype can hold give NaN, as on CPU.
XlaValue hermite(Args a, XlaValue first, Step step) {
  Builder& b = a.b;
  const XlaValue n = truncated(b, a[1]);
  const bool wide = a[0].element_type() == ElementType::kF64;
  const XlaValue over = b.gt(n, a.number(wide ? 512 : 128));
  return b.select(over, a.number(std::nan("")), recurrence(b, a[0], n, first, over, step));
}

const PointwiseOp kHermiteH{"aten::special_hermite_polynomial_h", [](Args a) {
                              auto step = [](XlaValue k, XlaValue x, XlaValue current,
                                             XlaValue previous) {
                                return 2 * x * current - 2 * k * previous;
                              };
                              return hermite(a, 2 * a[0], step);
                            }};
const PointwiseOp kHermiteHe{"aten::special_hermite_polynomial_he", [](Args a) {
                               auto step = [](XlaValue k, XlaValue x, XlaValue current,
                                              XlaValue previous) {
                                 return x * current - k * previous;
                               };
                               return hermite(a, a[0], step);
                             }};
const PointwiseOp kLaguerre{
    "aten::special_laguerre_polynomial_l", [](Args a) {
      auto step = [](XlaValue k, XlaValue x, XlaValue current, XlaValue previous) {
        return ((2 * k + 1 - x) * current - k * previous) / (k + 1);
      };
      return recurrence(a.b, a[0], truncated(a.b, a[1]), 1 - a[0], nothing(a.b, a[0]), step);
    }};
const PointwiseOp kLegendre{
    "aten::special_legendre_polynomial_p", [](Args a) {
      auto step = [](XlaValue k, XlaValue x, XlaValue current, XlaValue previous) {
        return ((2 * k + 1) * x * current - k * previous) / (k + 1);
      };
      return recurrence(a.b, a[0], truncated(a.b, a[1]), a[0], nothing(a.b, a[0]), step);
    }};

}  // namespace

#define POLYNOMIAL(name, op)                                        \
  numeric<at::meta::structured_special_##name, op, Domain::kFloat>( \
      m, {"special_" #name, nullptr, "special_" #name ".out"})

XLA_KERNELS(m) {
  POLYNOMIAL(chebyshev_polynomial_t, kT);
  POLYNOMIAL(chebyshev_polynomial_u, kU);
  POLYNOMIAL(chebyshev_polynomial_v, kV);
  POLYNOMIAL(chebyshev_polynomial_w, kW);
  POLYNOMIAL(shifted_chebyshev_polynomial_t, kShiftedT);
  POLYNOMIAL(shifted_chebyshev_polynomial_u, kShiftedU);
  POLYNOMIAL(shifted_chebyshev_polynomial_v, kShiftedV);
  POLYNOMIAL(shifted_chebyshev_polynomial_w, kShiftedW);
  POLYNOMIAL(hermite_polynomial_h, kHermiteH);
  POLYNOMIAL(hermite_polynomial_he, kHermiteHe);
  POLYNOMIAL(laguerre_polynomial_l, kLaguerre);
  POLYNOMIAL(legendre_polynomial_p, kLegendre);
}

}  // namespace torch_xla::aten
