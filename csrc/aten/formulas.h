#pragma once

// Formulas that more than one family makes nodes of. Each is defined beside its operator.

#include "aten/pointwise.h"

namespace torch_xla::aten {

// arithmetic.cpp. The last operand of the scaled ones is alpha.
extern const PointwiseOp kAdd, kAddScaled, kSub, kSubScaled, kMul, kDiv, kMaximum, kMinimum;
// Divided by what many elements share, as torch's CPU kernel rounds it.
extern const PointwiseOp kDivShared;
// binary.cpp
extern const PointwiseOp kPow;
// ternary.cpp: (self, a, b, value), and (self, end, weight).
extern const PointwiseOp kAddcmul, kAddcdiv, kLerp;
// unary.cpp
extern const PointwiseOp kAbs, kExp, kNeg, kReciprocal, kRsqrt, kSign, kSqrt;

// reduction.cpp: the norm of order `ord` of all elements of a real float tensor that has some, as a
// number of its dtype.
Value norm_of_all(const at::Tensor& self, const at::Scalar& ord);

}  // namespace torch_xla::aten
