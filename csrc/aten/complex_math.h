#pragma once

#include "stablehlo/builder.h"

namespace torch_xla::aten::complex_math {

// Functions of complex numbers for arguments with an infinity, a NaN or a signed zero in a part:
// what CPU gives, which is what C99 says (annex G.6) where the C library computes them, and what
// torch's own formulas say elsewhere. For other arguments XLA's. All take and give complex numbers.
using Value = stablehlo::Value;
using Builder = stablehlo::Builder;

Value exp(Builder& b, const Value& z);
Value expm1(Builder& b, const Value& z);
Value sqrt(Builder& b, const Value& z);
Value reciprocal(Builder& b, const Value& z);
Value sigmoid(Builder& b, const Value& z);
Value sgn(Builder& b, const Value& z);
Value sin(Builder& b, const Value& z);
Value cos(Builder& b, const Value& z);
Value tan(Builder& b, const Value& z);
Value sinh(Builder& b, const Value& z);
Value cosh(Builder& b, const Value& z);
Value tanh(Builder& b, const Value& z);
Value asin(Builder& b, const Value& z);
Value acos(Builder& b, const Value& z);
Value atan(Builder& b, const Value& z);
Value asinh(Builder& b, const Value& z);
Value acosh(Builder& b, const Value& z);
Value atanh(Builder& b, const Value& z);

}  // namespace torch_xla::aten::complex_math
